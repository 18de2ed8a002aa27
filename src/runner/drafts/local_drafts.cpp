#include "tessera/runner/drafts/local_drafts.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

constexpr std::size_t kLogits = 0;  // indices of the draft head's outputs, in the order of its graph
constexpr std::size_t kSampled = 1;

}  // namespace

Status LocalDrafts::check(const DraftInputs& inputs) const {
  TRY(check_rows(inputs.rows));
  TRY(inputs.batch.check());
  if (inputs.batch.num_tokens() > parts_.model.options.max_tokens)
    return internal_error(
        fmt::format("{} rows of a draft; {} fit", inputs.batch.num_tokens(), parts_.model.options.max_tokens));
  if (std::ssize(inputs.rows) != inputs.batch.num_tokens())
    return internal_error(
        fmt::format("a draft of {} tokens with {} hidden states", inputs.batch.num_tokens(), inputs.rows.size()));
  return ok_status();
}

Status LocalDrafts::check_rows(std::span<const std::int32_t> rows) const {
  if (!parts_.model.graphs.draft) return internal_error("a draft of a model without a next-token layer");
  const std::int64_t kept = parts_.draft_hidden()->rows();
  if (std::ranges::any_of(rows, [&](std::int32_t row) { return row < 0 || row >= kept; }))
    return internal_error(fmt::format("a draft's row is not among the {} hidden states", kept));
  return ok_status();
}

Status LocalDrafts::read(const DraftInputs& inputs) {
  TRY(check(inputs));
  GraphRunner& runner = parts_.runner(RunnerRole::kDraft);
  const std::int64_t size = runner.padded_size(inputs.batch.num_tokens());
  TRY(launcher_.stage({.batch = inputs.batch, .rope_positions = inputs.rope_positions, .draft_rows = inputs.rows},
                      BatchKind::kExtend, size));
  TRY(runner.make_ready(size));
  TRY(launcher_.launch(runner, size, inputs.batch.num_tokens(), Execution::kOperators));
  const OutputView hidden = TRY(runner.executable().output(runner.bucket(size), 0));
  return parts_.draft_hidden()->keep(hidden.data, inputs.batch.wanted_rows, parts_.stream());
}

Status LocalDrafts::draft(const DraftRows& from, std::span<float> logits) {
  const std::span<const std::int32_t> rows = from.rows;
  TRY(check_rows(rows));
  if (rows.empty()) return ok_status();
  TRY(hand_over(std::int64_t{*std::ranges::max_element(rows)} + 1));
  const std::int64_t most = parts_.runner(RunnerRole::kDraftHead).spec().ladder.back();
  const std::size_t columns = logits.size() / rows.size();
  for (std::size_t first = 0; first < rows.size(); first += static_cast<std::size_t>(most)) {
    const std::size_t count = std::min(static_cast<std::size_t>(most), rows.size() - first);
    TRY(run_head({.rows = rows.subspan(first, count), .first_id = from.first_id + static_cast<std::int64_t>(first)},
                 logits.subspan(first * columns, count * columns)));
  }
  return name_as_target(from.first_id, std::ssize(rows));
}

Status LocalDrafts::hand_over(std::int64_t count) {
  TRY(parts_.arena().grow(static_cast<std::size_t>(parts_.model.handed_over_bytes)));
  return parts_.draft_hidden()->copy_to(parts_.arena().base() + parts_.model.handed_over[0].offset, count,
                                        parts_.stream());
}

Status LocalDrafts::run_head(const DraftRows& from, std::span<float> logits) {
  GraphRunner& runner = parts_.runner(RunnerRole::kDraftHead);
  const std::int64_t count = std::ssize(from.rows);
  const std::int64_t size = runner.padded_size(count);
  TRY(parts_.inputs().stage_rows(from.rows, {}, size));
  TRY(runner.make_ready(size));
  TRY(launcher_.launch(runner, size, count, Execution::kOperators));
  const ir::Bucket bucket = runner.bucket(size);
  const OutputView sampled = TRY(runner.executable().output(bucket, kSampled));
  TRY(parts_.inputs().keep_sampled(sampled.data, from.first_id, count, parts_.stream()));
  if (logits.empty()) return ok_status();
  TRY(parts_.stream().download(logits.data(), TRY(runner.executable().output(bucket, kLogits)).data,
                               logits.size_bytes()));
  return parts_.stream().synchronize();  // the next run of the head overwrites the logits
}

// Translates drafted ids from the head's own numbering to the model's. An id outside the head's range is clamped into
// it; faulty weights of the layer may draft such an id.
Status LocalDrafts::name_as_target(std::int64_t first_id, std::int64_t count) {
  const std::vector<TokenId>& ids = parts_.model.graphs.draft->target_ids;
  const std::int64_t end = std::min(first_id + count, parts_.model.options.max_requests);
  if (ids.empty() || end <= first_id) return ok_status();
  TRY(fetch(end));
  TRY(parts_.stream().synchronize());
  const std::span<TokenId> drafts =
      ids_.subspan(static_cast<std::size_t>(first_id), static_cast<std::size_t>(end - first_id));
  for (TokenId& draft : drafts)
    draft = ids[static_cast<std::size_t>(std::clamp<std::int64_t>(draft.value(), 0, std::ssize(ids) - 1))];
  return parts_.inputs().set_last_ids(drafts, first_id, parts_.stream());
}

Status LocalDrafts::fetch(std::int64_t count) {
  if (count < 0 || count > parts_.model.options.max_requests)
    return internal_error(fmt::format("{} drafts are fetched; {} fit", count, parts_.model.options.max_requests));
  TRY(allocate_host());
  const std::span<TokenId> to = ids_.first(static_cast<std::size_t>(count));
  fetched_ = to;
  return parts_.inputs().download_sampled(to, parts_.stream());
}

Status LocalDrafts::allocate_host() {
  if (host_ != nullptr) return ok_status();
  const auto most = static_cast<std::size_t>(parts_.model.options.max_requests);
  host_ = TRY(parts_.model.device.allocate_host(most * sizeof(TokenId), "drafts"));
  ids_ = {reinterpret_cast<TokenId*>(host_->data()), most};
  return ok_status();
}

}  // namespace tessera
