#include "tessera/runner/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "tessera/base/progress.h"
#include "tessera/ops/attention/attention.h"
#include "tessera/runner/graphs/make_executable.h"
#include "tessera/runner/ranks/rank_order.h"
#include "tessera/runner/verify/compared_rows.h"
#include "tessera/runner/verify/find_nan.h"
#include "tessera/runner/verify/head_rows.h"
#include "tessera/runner/verify/poisoned_padding.h"
#include "tessera/runner/verify/verify_batch.h"
#include "tessera/runner/verify/verify_outcome.h"
#include "tessera/runner/verify/verify_vision.h"

namespace tessera {

bool VerifyReport::equal() const {
  return !rows.empty() &&
         std::all_of(rows.begin(), rows.end(), [](const VerifyRow& r) { return r.difference.empty(); });
}

class Verifier {
 public:
  Verifier(ModelRunner& runner, bool show_progress)
      : r_(runner.parts()),
        step_(runner.step()),
        table_(runner.dispatch_table()),
        show_progress_(show_progress),
        replayed_(runner.device()),
        expected_(runner.device()),
        padding_(runner.parts()),
        stateful_(&runner.model().graphs.body) {}

  Result<VerifyReport> run() {
    const auto start = std::chrono::steady_clock::now();
    poisoned_id_ = TRY(padding_.poison());
    const Status compared = compare_all();
    TRY(padding_.restore());
    TRY(compared);
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  Status compare_all() {
    if (r_.vision() != nullptr) report_.rows = TRY(verify_vision(*r_.vision()));
    // Without sizes there is nothing to verify.
    if (table_.prefill_sizes.empty() && table_.decode_sizes.empty()) return ok_status();
    const std::vector<RunnerSpec> specs = TRY(make_runner_specs(r_.model.graphs, r_.model.options));
    const auto isolated = [&](RunnerRole role) {
      const RunnerSpec& spec = *std::ranges::find(specs, role, &RunnerSpec::role);
      return make_executable(spec, r_.model.options, r_.environment(spec.batches), MemoryPlanKind::kIsolated,
                             /*log=*/false);
    };
    TRY(compare_prefill(r_.runner(RunnerRole::kPrefill), *TRY(isolated(RunnerRole::kPrefill)), table_.prefill_sizes));
    TRY(compare_sizes(r_.runner(RunnerRole::kDecode), *TRY(isolated(RunnerRole::kDecode)), table_.decode_sizes));
    if (r_.memory().adapters != nullptr) TRY(r_.memory().adapters->fill_at_random(r_.stream()));
    for (const auto& [role, sizes] : {std::pair(RunnerRole::kAdapterPrefill, table_.adapter_prefill_sizes),
                                      std::pair(RunnerRole::kAdapterDecode, table_.adapter_decode_sizes)})
      if (r_.memory().adapters != nullptr)
        TRY(is_decode_role(role) ? compare_sizes(r_.runner(role), *TRY(isolated(role)), sizes)
                                 : compare_prefill(r_.runner(role), *TRY(isolated(role)), sizes));
    for (const RunnerRole role : {RunnerRole::kHead, RunnerRole::kAdapterHead})
      if (r_.model.graphs.has_head && r_.find_runner(role) != nullptr)
        TRY(compare_heads(r_.runner(role), *TRY(isolated(role))));
    if (!r_.model.graphs.draft) return ok_status();
    TRY(compare_heads(r_.runner(RunnerRole::kDraftHead), *TRY(isolated(RunnerRole::kDraftHead))));
    stateful_ = &r_.model.graphs.draft->body;
    TRY(compare_draft_layer(r_.runner(RunnerRole::kDraft), *TRY(isolated(RunnerRole::kDraft))));
    if (GraphRunner* const drafts = r_.find_runner(RunnerRole::kDraftDecode); drafts != nullptr)
      TRY(compare_sizes(*drafts, *TRY(isolated(RunnerRole::kDraftDecode)), drafts->report().captured));
    stateful_ = &r_.model.graphs.body;
    return ok_status();
  }

  // Compares the next-token layer at its largest size and at all sizes that are powers of two. The layer runs without
  // graphs here.
  Status compare_draft_layer(GraphRunner& runner, Executable& isolated) {
    const std::vector<std::int64_t>& ladder = runner.spec().ladder;
    for (std::size_t i = 0; i < ladder.size(); ++i) {
      const std::int64_t size = ladder[i];
      if ((size & (size - 1)) != 0 && i + 1 < ladder.size()) continue;
      const std::int64_t below = i == 0 ? 0 : ladder[i - 1];
      TRY(runner.make_ready(size));
      TRY(isolated.bind(runner.bucket(size)));
      TRY(compare(runner, isolated, size, size, {}));
      if (below + 1 < size) TRY(compare(runner, isolated, size, below + 1, {}));
      isolated.drop(runner.bucket(size));
    }
    return ok_status();
  }

  // Compares the head, which has no graphs. Also checks that the head's memory plan does not overwrite the head's
  // inputs.
  Status compare_heads(GraphRunner& runner, Executable& isolated) {
    const std::vector<TensorView> read_rows = TRY(rows_of_head(r_, runner.spec().role));
    for (const TensorView& view : read_rows) TRY(content_of(static_cast<std::size_t>(view.bytes()), view.dtype));
    for (const std::int64_t rows : runner.spec().ladder) {
      const ir::Bucket bucket = runner.bucket(rows);
      std::vector<std::int32_t> wanted(static_cast<std::size_t>(rows));
      for (std::size_t i = 0; i < wanted.size(); ++i)
        wanted[i] = static_cast<std::int32_t>(i * 7 % static_cast<std::size_t>(read_rows[0].dim(0)));
      const auto run = [&](Executable& head, VerifyOutcome& outcome) -> Status {
        for (const TensorView& view : read_rows) {
          const auto bytes = static_cast<std::size_t>(view.bytes());
          TRY(r_.stream().copy(view.data, TRY(content_of(bytes, view.dtype)), bytes));
        }
        TRY(r_.memory().inputs.stage_rows(wanted, {}, rows));
        TRY(step_.launcher().upload());
        TRY(head.run(bucket));
        return read(head, bucket, /*states=*/false, outcome);
      };
      rows_.set_first(wanted.size());
      TRY(runner.make_ready(rows));
      TRY(run(runner.executable(), replayed_));
      TRY(isolated.bind(bucket));
      TRY(run(isolated, expected_));
      std::string difference = TRY(first_difference(isolated, bucket));
      isolated.drop(bucket);
      report_.rows.push_back(
          {.runner = std::string(runner.name()), .size = rows, .real = rows, .difference = std::move(difference)});
    }
    return ok_status();
  }

  // Returns whether the comparison of prefills also runs batches that want only the last row of each request. In a
  // pipeline only the last stage leaves out unwanted rows, but every stage must return the same value here, because all
  // stages take part in each forward.
  bool has_last_rows() const {
    return r_.model.options.has_stages() ||
           std::ranges::any_of(r_.model.graphs.prefill_body().nodes,
                               [](const ir::Node& node) { return node.attribute_or(kWantedRowsOnly, false); });
  }

  // Compares the prefill sizes. If a size has a full graph, both the pieces and the full graph are compared.
  Status compare_prefill(GraphRunner& runner, Executable& isolated, const std::vector<std::int64_t>& sizes) {
    TRY(compare_sizes(runner, isolated, sizes));
    TRY(compare_full(runner, isolated, runner.report().full));
    if (!has_last_rows()) return ok_status();
    TRY(compare_last_rows(runner, isolated, sizes, GraphForm::kPieces));
    return compare_last_rows(runner, isolated, runner.report().full, GraphForm::kFull);
  }

  Status compare_last_rows(GraphRunner& runner, Executable& isolated, const std::vector<std::int64_t>& sizes,
                           GraphForm form) {
    for (const std::int64_t size : sizes) {
      if (size == 1) continue;
      TRY(isolated.bind(runner.bucket(size)));
      TRY(compare(runner, isolated, size, size, {.form = form, .last_rows = true}));
      isolated.drop(runner.bucket(size));
    }
    return ok_status();
  }

  Status compare_sizes(GraphRunner& runner, Executable& isolated, const std::vector<std::int64_t>& sizes) {
    Progress progress(fmt::format("Verifying {}", runner.name()), std::ssize(sizes), "sizes", show_progress_);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::int64_t size = sizes[i];
      const std::int64_t below = i == 0 ? 0 : sizes[i - 1];
      TRY(isolated.bind(runner.bucket(size)));
      const bool drafts = is_decode_role(runner.spec().role) && r_.model.options.max_drafts > 0 && size > 1;
      // A decode of more rows than the cache has room for requests always has drafts.
      const Way way{.drafts = drafts && size > r_.model.options.shared_pages()};
      // Compares the size without padding, and with the maximum padding that dispatch may add.
      TRY(compare(runner, isolated, size, size, way));
      if (below + 1 < size) TRY(compare(runner, isolated, size, below + 1, way));
      const std::int64_t real = std::max(below + 1, size - 1);
      const bool compared = way.drafts && real == below + 1;
      if (drafts && !compared) TRY(compare(runner, isolated, size, real, {.drafts = true}));
      if (drafts && has_draft_body(runner.spec().role))
        TRY(compare(runner, isolated, size, real, {.last_rows = true, .drafts = true}));
      isolated.drop(runner.bucket(size));
      progress.advance(1);
    }
    return ok_status();
  }

  // Compares the full graphs of `sizes`, without padding and with one padding row.
  Status compare_full(GraphRunner& runner, Executable& isolated, const std::vector<std::int64_t>& sizes) {
    for (const std::int64_t size : sizes) {
      TRY(isolated.bind(runner.bucket(size)));
      TRY(compare(runner, isolated, size, size, {.form = GraphForm::kFull}));
      if (size > 2) TRY(compare(runner, isolated, size, size - 1, {.form = GraphForm::kFull}));
      isolated.drop(runner.bucket(size));
    }
    return ok_status();
  }

  struct Way {
    GraphForm form = GraphForm::kPieces;
    bool last_rows = false;  // whether only the last row of each request is wanted and compared
    bool drafts = false;     // whether the batch is a decode whose requests have drafts
  };
  // Compares one batch at `size`. `real` is the batch's number of rows.
  Status compare(GraphRunner& runner, Executable& isolated, std::int64_t size, std::int64_t real, const Way& way) {
    const bool full = way.form == GraphForm::kFull;
    if (full && !can_have_several_rows_each(real, r_.model.options.context_length)) return ok_status();
    const bool decode = is_decode_role(runner.spec().role);
    const bool is_draft = has_draft_body(runner.spec().role);
    const VerifyBatch made = TRY(
        make_verify_batch({.options = r_.model.options,
                           .groups = r_.model.graphs.body.cache_groups,
                           .row_values = r_.memory().embeddings.row_values(),
                           .poisoned_id = poisoned_id_,
                           .several_rows_each = full,
                           .last_rows_wanted = way.last_rows,
                           .max_drafts = way.drafts ? r_.model.options.max_drafts : 0,
                           .adapter_slots = has_adapters(runner.spec().role) ? r_.memory().adapters->num_slots() : 0},
                          real, decode));
    draft_rows_.clear();
    for (std::int64_t row = 0; is_draft && row < made.batch.num_tokens(); ++row)
      draft_rows_.push_back(static_cast<std::int32_t>(row * 7 % r_.memory().draft_hidden->rows()));
    const StagedTokens tokens{made.batch, made.rope_positions, poisoned_id_, draft_rows_};
    pages_ = made.pages;
    rows_.set(made.batch.wanted_rows);
    const ir::Bucket bucket = runner.bucket(size);
    TRY(prepare(tokens, decode, size));
    TRY(runner.spec().captured ? runner.replay(size, way.form) : runner.run(size));
    TRY(read(runner.executable(), bucket, /*states=*/true, replayed_));

    TRY(prepare(tokens, decode, size));
    TRY(isolated.poison(bucket));
    TRY(isolated.run(bucket));
    TRY(read(isolated, bucket, /*states=*/true, expected_));
    std::string difference = TRY(first_difference(isolated, bucket));
    if (const Status guards = isolated.check_guards(bucket); !guards.ok() && difference.empty())
      difference = guards.message();
    report_.rows.push_back({.runner = fmt::format("{}{}{}{}", runner.name(), full ? ", full" : "",
                                                  way.last_rows ? ", last rows" : "", way.drafts ? ", drafts" : ""),
                            .size = size,
                            .real = real,
                            .difference = std::move(difference)});
    return ok_status();
  }

  // Stages the batch and fills the KV cache with the same pseudo-random content every time.
  Status prepare(const StagedTokens& tokens, bool decode, std::int64_t size) {
    const ForwardBatch& batch = tokens.batch;
    TRY(fill_kv_cache());
    if (!tokens.draft_rows.empty()) TRY(fill_draft_hidden());
    for (const EmbeddingWrite& write : batch.embedding_writes) {
      TRY(r_.memory().embeddings.reserve(std::ssize(write.values) / r_.memory().embeddings.row_values()));
      TRY(r_.memory().embeddings.write(write, r_.stream()));
    }
    const auto rows =
        std::min<std::size_t>(batch.wanted_rows.size(), static_cast<std::size_t>(r_.memory().inputs.limits().max_rows));
    std::vector<SampleRow> sampling(rows);
    for (std::size_t i = 0; i < rows; ++i)
      sampling[i] = {.temperature = i % 2 == 0 ? 0.0F : 0.8F,
                     .top_k = i % 3 == 0 ? 0 : 20,
                     .top_p = 0.95F,
                     .seed = static_cast<std::int64_t>(i) * 31 + 7};
    if (decode && tokens.draft_rows.empty()) {
      TRY(step_.stage_decode(tokens, size, sampling));
    } else {
      TRY(step_.launcher().stage(tokens, decode ? BatchKind::kDecode : BatchKind::kExtend, size));
      TRY(r_.memory().inputs.stage_rows(std::span(batch.wanted_rows).first(rows), sampling,
                                        std::min(size, r_.memory().inputs.limits().max_rows)));
    }
    return step_.launcher().upload();
  }

  // Returns the memory of the given pages of a state.
  MemoryRange pages_of(const ir::Value& state, const PageRange& range) const {
    auto page_bytes = static_cast<std::int64_t>(ir::dtype_size(state.type.dtype));
    for (std::size_t d = 1; d < state.type.shape.size(); ++d) page_bytes *= *state.type.shape[d].constant();
    return {r_.externals().find(state.name, {}) + range.begin * page_bytes,
            static_cast<std::size_t>(range.count() * page_bytes)};
  }
  // Returns the range of pages that begins with page 0 and contains every page named in any group's page table. So a
  // kernel that wrongly uses another group's page table reads only pages of this range.
  PageRange named_pages(std::size_t group) const {
    PageRange named{.begin = 0, .end = 0};
    for (const PageRange& pages : pages_) named.end = std::max(named.end, pages.end);
    named.end = std::min(named.end, r_.model.options.num_pages[group]);
    return named;
  }

  // Fills the batch's pages with numbers. Fills the other pages of named_pages(), including page 0, with NaN.
  Status fill_kv_cache() {
    for (const ir::ValueId id : stateful_->states) {
      const ir::Value& state = stateful_->value(id);
      const std::size_t group = *ir::cache_group_of(state.type);
      const MemoryRange named = pages_of(state, named_pages(group));
      const MemoryRange own = pages_of(state, pages_[group]);
      const DeviceAddress content = TRY(content_of(own.bytes, state.type.dtype));
      TRY(r_.stream().fill(named.data, IsolatedMemory::kPoison, named.bytes));
      TRY(r_.stream().copy(own.data, content, own.bytes));
    }
    return ok_status();
  }

  // Fills the hidden states from which drafts continue.
  Status fill_draft_hidden() {
    DraftHidden& hidden = *r_.memory().draft_hidden;
    const ir::DType dtype = stateful_->find_value(input_names::kDraftHidden)->type.dtype;
    return hidden.keep(TRY(content_of(static_cast<std::size_t>(hidden.bytes()), dtype)), hidden.rows(), r_.stream());
  }

  // Returns at least `bytes` bytes of small finite numbers of either sign, with exponents well below the maximum. All
  // states of one type get the same numbers.
  Result<DeviceAddress> content_of(std::size_t bytes, ir::DType dtype) {
    std::unique_ptr<Allocation>& content = content_[dtype];
    if (content != nullptr && content->size() >= bytes) return content->data();
    const std::vector<std::byte> made = small_numbers(dtype, bytes + bytes / 2);
    content = TRY(r_.model.device.allocate(made.size(), "verified content"));
    TRY(r_.stream().upload(content->data(), made.data(), made.size()));
    return content->data();
  }

  // Downloads the compared rows of every output and, for each state, the batch's pages except page 0. No request reads
  // page 0, which holds the keys and values of padding rows.
  Status read(const Executable& executable, const ir::Bucket& bucket, bool states, VerifyOutcome& outcome) {
    std::vector<std::vector<MemoryRange>> sections;
    for (std::size_t i = 0; i < executable.graph().outputs.size(); ++i) {
      const TensorView view = TRY(executable.output(bucket, i));
      const std::int64_t row_bytes = view.bytes() / std::max<std::int64_t>(view.dim(0), 1);
      sections.push_back(
          ranges_of(rows_.of(output_slot(executable, i)), view.data, static_cast<std::size_t>(row_bytes)));
    }
    for (const ir::ValueId id : stateful_->states) {
      if (!states) break;
      const ir::Value& state = stateful_->value(id);
      PageRange pages = named_pages(*ir::cache_group_of(state.type));
      pages.begin = 1;
      sections.push_back({pages_of(state, pages)});
    }
    TRY(outcome.download(sections, r_.stream()));
    return r_.stream().synchronize();
  }

  static const Slot& output_slot(const Executable& executable, std::size_t i) {
    return executable.graph().slots[static_cast<std::size_t>(executable.graph().outputs[i])];
  }

  // Returns the first difference between replayed_ and expected_. `executable` is the executable that computed
  // expected_.
  Result<std::string> first_difference(const Executable& executable, const ir::Bucket& bucket) {
    const std::size_t num_outputs = executable.graph().outputs.size();
    for (std::size_t i = 0; i < num_outputs; ++i) {
      const Slot& slot = output_slot(executable, i);
      const TensorView view = TRY(executable.output(bucket, i));
      const std::int64_t cols = std::max<std::int64_t>(view.elements() / std::max<std::int64_t>(view.dim(0), 1), 1);
      const auto place = [&](std::int64_t index) {
        return fmt::format("%{} row {} column {}", slot.name, rows_.of(slot)[static_cast<std::size_t>(index / cols)],
                           index % cols);
      };
      const auto element = static_cast<std::int64_t>(ir::dtype_size(slot.type.dtype));
      if (const std::int64_t at = find_difference(replayed_.section(i), expected_.section(i)); at >= 0)
        return fmt::format("{} differs from the isolated run", place(at / element));
      // If the head shares the weights of the embedding, the logit of the poisoned id (whose embedding is NaN) is NaN.
      // No other value may be NaN.
      const std::int64_t poisoned_col = slot.name == "logits" ? poisoned_id_.value() : -1;
      if (const std::int64_t at = find_nan(expected_.section(i), slot.type.dtype, cols, poisoned_col); at >= 0)
        return fmt::format("{} is NaN: a real row read padding, or a page that is not its request's", place(at));
    }
    for (std::size_t i = num_outputs; i < expected_.num_sections(); ++i) {
      const std::int64_t at = find_difference(replayed_.section(i), expected_.section(i));
      const ir::ValueId state = stateful_->states[i - num_outputs];
      if (at >= 0) return fmt::format("%{} differs from the isolated run at byte {}", stateful_->value(state).name, at);
    }
    return std::string();
  }

  RunnerParts& r_;
  ForwardStep& step_;
  const DispatchTable& table_;
  bool show_progress_;
  VerifyReport report_;
  VerifyOutcome replayed_;
  VerifyOutcome expected_;
  std::vector<PageRange> pages_;  // pages of the current batch in each cache group
  ComparedRows rows_;
  std::map<ir::DType, std::unique_ptr<Allocation>> content_;  // the initial content of every state, on the device
  PoisonedPadding padding_;
  TokenId poisoned_id_;
  const ir::Graph* stateful_;  // the graph whose states are compared
  // For each token of the current batch, its row of draft_hidden. Empty for forwards of the model itself.
  std::vector<std::int32_t> draft_rows_;
};

Result<VerifyReport> verify(ModelRunner& runner, bool show_progress) {
  TRY(runner.capture_rest());
  VerifyReport report;
  TRY(runner.together({.kind = RankOrderKind::kVerify}, [&]() -> Status {
    report = TRY(Verifier(runner, show_progress).run());
    return ok_status();
  }));
  return report;
}

}  // namespace tessera
