#include "tessera/runner/drafts/draft_step.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

constexpr std::size_t kLogits = 0;  // outputs of the draft head, in the order of its chain
constexpr std::size_t kSampled = 1;

}  // namespace

Status DraftStep::check(const DraftInputs& inputs, std::size_t drafts) const {
  if (!parts_.model.graphs.draft) return internal_error("a draft of a model without a next-token layer");
  TRY(inputs.batch.check());
  if (inputs.batch.num_tokens() > parts_.model.options.max_tokens)
    return internal_error(
        fmt::format("{} rows of a draft; {} fit", inputs.batch.num_tokens(), parts_.model.options.max_tokens));
  if (std::ssize(inputs.rows) != inputs.batch.num_tokens() || inputs.batch.wanted_rows.size() != drafts)
    return internal_error(fmt::format("a draft of {} tokens with {} hidden states, and {} drafts of {} wanted rows",
                                      inputs.batch.num_tokens(), inputs.rows.size(), drafts,
                                      inputs.batch.num_wanted_rows()));
  const std::int64_t kept = parts_.draft_hidden()->rows();
  if (std::ranges::any_of(inputs.rows, [&](std::int32_t row) { return row < 0 || row >= kept; }))
    return internal_error(fmt::format("a draft's row is not among the {} hidden states", kept));
  return ok_status();
}

Status DraftStep::run(const DraftInputs& inputs, std::span<TokenId> drafts, std::span<float> logits) {
  TRY(check(inputs, drafts.size()));
  TRY(run_body(inputs));
  if (!drafts.empty()) TRY(run_head(inputs, drafts, logits));
  TRY(parts_.stream().synchronize());
  name_as_target(drafts);
  return ok_status();
}

// Replaces the head's ids by the model's. A number outside the ids, which a fault in the layer's weights may cause,
// becomes the nearest id.
void DraftStep::name_as_target(std::span<TokenId> drafts) const {
  const std::vector<TokenId>& ids = parts_.model.graphs.draft->target_ids;
  const std::int64_t count = ids.empty() ? parts_.model.vocab_size : std::ssize(ids);
  for (TokenId& draft : drafts) {
    const auto id = static_cast<std::int32_t>(std::clamp<std::int64_t>(draft.value(), 0, count - 1));
    draft = ids.empty() ? TokenId(id) : ids[static_cast<std::size_t>(id)];
  }
}

Status DraftStep::run_body(const DraftInputs& inputs) {
  GraphRunner& runner = parts_.runner(RunnerRole::kDraft);
  const std::int64_t size = runner.padded_size(inputs.batch.num_tokens());
  TRY(launcher_.stage({.batch = inputs.batch, .rope_positions = inputs.rope_positions, .draft_rows = inputs.rows},
                      BatchKind::kExtend, size));
  TRY(runner.make_ready(size));
  TRY(launcher_.launch(runner, size, inputs.batch.num_tokens(), Execution::kOperators));
  // In planned memory the hidden states already lie where the head reads them.
  const OutputView hidden = TRY(runner.executable().output(runner.bucket(size), 0));
  const DeviceAddress place = parts_.arena().base() + parts_.model.handed_over[0].offset;
  if (hidden.data != place) {
    TRY(parts_.arena().grow(static_cast<std::size_t>(parts_.model.handed_over_bytes)));
    TRY(parts_.stream().copy(place, hidden.data, static_cast<std::size_t>(hidden.bytes())));
  }
  return parts_.draft_hidden()->keep(place, inputs.batch.wanted_rows, parts_.stream());
}

Status DraftStep::run_head(const DraftInputs& inputs, std::span<TokenId> drafts, std::span<float> logits) {
  GraphRunner& runner = parts_.runner(RunnerRole::kDraftHead);
  const std::span<const std::int32_t> wanted = inputs.batch.wanted_rows;
  const auto most = static_cast<std::size_t>(runner.spec().ladder.back());
  const ir::Graph& head = parts_.model.graphs.draft->head;
  const auto vocab = static_cast<std::size_t>(*head.value(head.outputs[0]).type.shape.back().constant());
  for (std::size_t first = 0; first < wanted.size(); first += most) {
    const std::size_t count = std::min(most, wanted.size() - first);
    const std::int64_t size = runner.padded_size(static_cast<std::int64_t>(count));
    TRY(parts_.inputs().stage_rows(wanted.subspan(first, count), {}, size));
    TRY(runner.make_ready(size));
    TRY(launcher_.launch(runner, size, static_cast<std::int64_t>(count), Execution::kOperators));
    const ir::Bucket bucket = runner.bucket(size);
    const OutputView sampled = TRY(runner.executable().output(bucket, kSampled));
    const std::span<TokenId> to = drafts.subspan(first, count);
    TRY(parts_.stream().download(to.data(), sampled.data, to.size_bytes()));
    if (logits.empty()) continue;
    const std::span<float> rows = logits.subspan(first * vocab, count * vocab);
    TRY(parts_.stream().download(rows.data(), TRY(runner.executable().output(bucket, kLogits)).data,
                                 rows.size_bytes()));
    TRY(parts_.stream().synchronize());  // the next run of the head overwrites the logits
  }
  return ok_status();
}

}  // namespace tessera
