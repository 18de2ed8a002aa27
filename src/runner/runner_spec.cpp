#include "tessera/runner/runner_spec.h"

#include <algorithm>
#include <utility>

#include "tessera/device/alignment.h"
#include "tessera/model/sampler.h"
#include "tessera/piecewise/chain.h"
#include "tessera/piecewise/ladder.h"
#include "tessera/runner/drafts/draft_graphs.h"
#include "tessera/runner/drafts/draft_hidden.h"

namespace tessera {
namespace {

using ir::Symbol;

using NumPages = std::vector<std::int64_t>;  // [cache groups]

ir::Bucket prefill_bucket(std::int64_t tokens, const NumPages& num_pages) {
  ir::Bucket bucket;
  bucket[Symbol::kTokens] = tokens;
  for (std::size_t group = 0; group < num_pages.size(); ++group) bucket[ir::page_symbol(group)] = num_pages[group];
  return bucket;
}

// Returns the bucket of a decode batch, whose rows are all wanted.
ir::Bucket decode_bucket(std::int64_t rows, const NumPages& num_pages) {
  ir::Bucket bucket = prefill_bucket(rows, num_pages);
  bucket[Symbol::kRequests] = rows;
  bucket[Symbol::kQueryLength] = 1;
  bucket[Symbol::kRows] = rows;
  return bucket;
}

ir::Bucket head_bucket(std::int64_t rows, std::int64_t max_tokens) {
  ir::Bucket bucket;
  bucket[Symbol::kTokens] = max_tokens;  // wanted rows may be any of the body's rows
  bucket[Symbol::kRows] = rows;
  return bucket;
}

ir::Bucket choice_bucket(std::int64_t rows) {
  ir::Bucket bucket;
  bucket[Symbol::kRows] = rows;
  return bucket;
}

// The maximum size, in rows, of a graph that makes a whole draft. The head computes all rows of the graph, even if they
// are not wanted. Up to this size, computing all rows takes about as long as computing one row, because reading the
// head's weights takes most of the time.
constexpr std::int64_t kMostDraftDecodeRows = 64;

std::vector<std::int64_t> draft_decode_sizes(const RunnerOptions& options) {
  std::vector<std::int64_t> sizes = options.decode_sizes;
  std::erase_if(sizes, [](std::int64_t size) { return size > kMostDraftDecodeRows; });
  return sizes;
}

}  // namespace

std::string_view runner_role_name(RunnerRole role) {
  switch (role) {
    case RunnerRole::kPrefill: return "prefill";
    case RunnerRole::kHead: return "head";
    case RunnerRole::kDecode: return "decode";
    case RunnerRole::kChoose: return "choose";
    case RunnerRole::kLogprobs: return "logprobs";
    case RunnerRole::kDraft: return "draft";
    case RunnerRole::kDraftHead: return "draft head";
    case RunnerRole::kDraftDecode: return "draft decode";
    case RunnerRole::kAdapterPrefill: return "adapter prefill";
    case RunnerRole::kAdapterHead: return "adapter head";
    case RunnerRole::kAdapterDecode: return "adapter decode";
    case RunnerRole::kVision: return "vision";
  }
  return "unknown";
}

std::int64_t max_padded_tokens(const RunnerOptions& options) {
  std::int64_t most = options.max_tokens;
  if (!options.prefill_sizes.empty()) most = std::max(most, options.prefill_sizes.back());
  if (!options.decode_sizes.empty()) most = std::max(most, options.decode_sizes.back());
  return most;
}

std::int64_t max_head_rows(const RunnerOptions& options) {
  const std::int64_t decoded = options.decode_sizes.empty() ? 0 : options.decode_sizes.back();
  // One run of the head should compute the rows of all running requests and their drafts, because each run reads the
  // weights again. If there are more than 2 * kMaxHeadRows rows, several runs share them. This limits the memory of
  // logits. A decode graph always computes the logits of all its rows at once, so the result is at least the largest
  // decode size.
  return std::max({kMaxHeadRows, decoded, std::min(options.max_requests, 2 * kMaxHeadRows)});
}

std::int64_t vocabulary_of(const ModelGraphs& graphs) {
  return *graphs.head.value(graphs.head.outputs[0]).type.shape.back().constant();
}

Result<std::vector<HandedOver>> handed_over(const ModelGraphs& graphs, const RunnerOptions& options) {
  const ir::Graph& body = graphs.prefill_body();
  const ir::Bucket largest = prefill_bucket(max_padded_tokens(options), options.num_pages);
  std::vector<HandedOver> values;
  std::int64_t offset = 0;
  for (const ir::ValueId id : body.outputs) {
    const ir::Value& value = body.value(id);
    // Without separate prefill graphs, the body's first output holds the hidden states and may have any name. The head
    // reads it as its input "hidden".
    const bool is_hidden = !graphs.prefill && values.empty();
    values.push_back({.name = is_hidden ? "hidden" : value.name, .type = value.type, .offset = offset});
    offset += align_up(TRY(ir::size_bytes(value.type, largest)));
  }
  return values;
}

Result<std::int64_t> handed_over_bytes(const ModelGraphs& graphs, const RunnerOptions& options) {
  const HandedOver last = TRY(handed_over(graphs, options)).back();
  const ir::Bucket largest = prefill_bucket(max_padded_tokens(options), options.num_pages);
  const std::int64_t end = last.offset + align_up(TRY(ir::size_bytes(last.type, largest)));
  if (!graphs.draft) return end;
  // The head of a draft also reads hidden states from the arena's start. The range must have room for these too,
  // because their rows may be longer than those of the target model's hidden states.
  return std::max(end, align_up(TRY(DraftHidden::bytes_needed(graphs.draft->body))));
}

Result<std::int64_t> choice_logits_offset(const ModelGraphs& graphs, const RunnerOptions& options) {
  const std::int64_t rows = max_head_rows(options);
  ir::Bucket largest;
  largest[Symbol::kRows] = rows;
  largest[Symbol::kTokens] = std::max(rows, max_padded_tokens(options));
  const auto end_of_outputs = [&](const ir::Graph& body, const ir::Graph& head) -> Result<std::int64_t> {
    std::int64_t end = 0;
    for (const ir::Graph* graph : {&body, &head, &graphs.sampler})
      for (const ir::ValueId output : graph->outputs)
        end += align_up(TRY(ir::size_bytes(graph->value(output).type, largest)));
    return end;
  };
  return std::max(TRY(end_of_outputs(graphs.body, graphs.head)),
                  TRY(end_of_outputs(graphs.prefill_body(), graphs.prefill_head())));
}

std::vector<const ir::Graph*> all_graphs(const ModelGraphs& graphs) {
  std::vector<const ir::Graph*> all{&graphs.body,    &graphs.prefill_body(), &graphs.head,
                                    &graphs.sampler, &graphs.choose,         &graphs.logprobs};
  if (graphs.draft) all.insert(all.end(), {&graphs.draft->body, &graphs.draft->head, &graphs.draft->sampler});
  return all;
}

PlanLimits plan_limits(const RunnerOptions& options) {
  return {.max_requests = options.max_requests,
          .max_tokens = max_padded_tokens(options),
          .max_pages_per_request = pages_for(options.context_length, options.page_size),
          .page_size = options.page_size,
          .deterministic = options.deterministic,
          .drafts = options.max_drafts > 0,
          .check_page_tables = options.debug};
}

Result<std::vector<RunnerSpec>> make_runner_specs(const ModelGraphs& graphs, const RunnerOptions& options) {
  const std::int64_t max_tokens = max_padded_tokens(options);
  const std::int64_t max_rows = max_head_rows(options);
  const NumPages num_pages = options.num_pages;
  const ir::Type& logits = graphs.choose.value(graphs.choose.states[0]).type;
  const std::int64_t choice_reserved =
      TRY(choice_logits_offset(graphs, options)) + TRY(ir::size_bytes(logits, choice_bucket(kMaxChoiceRows)));

  // A pipeline stage without a head ends with its body.
  std::vector<const ir::Graph*> decoded{&graphs.body};
  if (graphs.has_head) decoded.insert(decoded.end(), {&graphs.head, &graphs.sampler});

  const std::int64_t handed_over = TRY(handed_over_bytes(graphs, options));
  ir::Graph head = TRY(chain("head", std::vector{&graphs.prefill_head(), &graphs.sampler}));
  ir::Graph decode = TRY(chain("decode", decoded));

  std::vector<RunnerSpec> specs;
  specs.push_back({.role = RunnerRole::kPrefill,
                   .graph = graphs.prefill_body(),
                   .bucket = [=](std::int64_t tokens) { return prefill_bucket(tokens, num_pages); },
                   .largest = max_tokens,
                   .ladder = options.prefill_sizes,
                   .captured = options.graphs.prefill,
                   .split_ops = options.split_ops});
  specs.push_back({.role = RunnerRole::kHead,
                   .graph = std::move(head),
                   .bucket = [=](std::int64_t rows) { return head_bucket(rows, max_tokens); },
                   .largest = max_rows,
                   .ladder = decode_ladder(max_rows),
                   .split_ops = {},
                   .reserved_bytes = handed_over});
  specs.push_back({.role = RunnerRole::kDecode,
                   .graph = std::move(decode),
                   .batches = BatchKind::kDecode,
                   .bucket = [=](std::int64_t rows) { return decode_bucket(rows, num_pages); },
                   .largest = max_rows,
                   .ladder = options.decode_sizes,
                   .captured = options.graphs.decode,
                   .runs_eagerly = false,
                   .split_ops = options.decode_split_ops});
  specs.push_back({.role = RunnerRole::kChoose,
                   .graph = graphs.choose,
                   .bucket = choice_bucket,
                   .largest = kMaxChoiceRows,
                   .ladder = decode_ladder(kMaxChoiceRows),
                   .split_ops = {},
                   .reserved_bytes = choice_reserved});
  specs.push_back({.role = RunnerRole::kLogprobs,
                   .graph = graphs.logprobs,
                   .bucket = choice_bucket,
                   .largest = kMaxChoiceRows,
                   .ladder = decode_ladder(kMaxChoiceRows),
                   .split_ops = {},
                   .reserved_bytes = choice_reserved});
  if (graphs.adapted) {
    // These specs are copies of the model's own specs, but with the graphs that have adapters.
    const std::optional<PrefillGraphs>& adapted = graphs.adapted->prefill;
    const std::vector heads{adapted ? &adapted->head : &graphs.adapted->head, &graphs.sampler};
    decoded[0] = &graphs.adapted->body;
    if (graphs.has_head) decoded[1] = &graphs.adapted->head;
    std::vector<ir::Graph> changed;
    changed.push_back(adapted ? adapted->body : graphs.adapted->body);
    changed.push_back(TRY(chain("adapter_head", heads)));
    changed.push_back(TRY(chain("adapter_decode", decoded)));
    constexpr std::array kRoles{RunnerRole::kAdapterPrefill, RunnerRole::kAdapterHead, RunnerRole::kAdapterDecode};
    for (std::size_t i = 0; i < kRoles.size(); ++i) {
      RunnerSpec spec = specs[i];
      spec.role = kRoles[i];
      spec.graph = std::move(changed[i]);
      specs.push_back(std::move(spec));
    }
  }
  if (!graphs.draft) return specs;
  ir::Graph draft_head = TRY(make_draft_head(*graphs.draft, options.registry->ops));
  ir::Graph draft_decode = TRY(make_draft_decode(*graphs.draft, draft_head));
  // A draft runs between forwards, when the host has read all results, so nothing in the arena has to be kept.
  specs.push_back({.role = RunnerRole::kDraft,
                   .graph = graphs.draft->body,
                   .bucket = [=](std::int64_t tokens) { return prefill_bucket(tokens, num_pages); },
                   .largest = options.max_tokens,
                   .ladder = decode_ladder(options.max_tokens),
                   .split_ops = options.split_ops});
  specs.push_back({.role = RunnerRole::kDraftHead,
                   .graph = std::move(draft_head),
                   .bucket = [=](std::int64_t rows) { return head_bucket(rows, max_tokens); },
                   .largest = max_rows,
                   .ladder = decode_ladder(max_rows),
                   .split_ops = {},
                   .reserved_bytes = handed_over});
  const std::vector<std::int64_t> draft_sizes = draft_decode_sizes(options);
  if (!options.graphs.decode || draft_sizes.empty()) return specs;
  specs.push_back({.role = RunnerRole::kDraftDecode,
                   .graph = std::move(draft_decode),
                   .batches = BatchKind::kDecode,
                   .bucket = [=](std::int64_t rows) { return decode_bucket(rows, num_pages); },
                   .largest = draft_sizes.back(),
                   .ladder = draft_sizes,
                   .captured = true,
                   .runs_eagerly = false,
                   .split_ops = options.decode_split_ops});
  return specs;
}

}  // namespace tessera
