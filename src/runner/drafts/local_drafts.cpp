#include "tessera/runner/drafts/local_drafts.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/piecewise/ladder.h"

namespace tessera {
namespace {

constexpr std::size_t kHidden = 0;  // index of the hidden states among the outputs of the body and of the whole draft
constexpr std::size_t kLogits = 0;  // index of the logits among the outputs of the draft head

// Returns the drafts, which are the last output (make_draft_head, make_draft_decode).
Result<OutputView> drafts_of(const GraphRunner& runner, std::int64_t size) {
  const Executable& executable = runner.executable();
  return executable.output(runner.bucket(size), executable.graph().outputs.size() - 1);
}

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
  const std::int64_t kept = parts_.memory().draft_hidden->rows();
  if (std::ranges::any_of(rows, [&](std::int32_t row) { return row < 0 || row >= kept; }))
    return internal_error(fmt::format("a draft's row is not among the {} hidden states", kept));
  return ok_status();
}

Status LocalDrafts::read(const DraftInputs& inputs) {
  replay_failed_ = false;
  TRY(check(inputs));
  if (inputs.first_id)
    if (const std::optional<std::int64_t> size = graph_size(inputs.batch)) return replay(inputs, *size);
  GraphRunner& runner = parts_.runner(RunnerRole::kDraft);
  const std::int64_t size = runner.padded_size(inputs.batch.num_tokens());
  TRY(launcher_.stage({.batch = inputs.batch, .rope_positions = inputs.rope_positions, .draft_rows = inputs.rows},
                      BatchKind::kExtend, size));
  TRY(runner.make_ready(size));
  TRY(launcher_.launch(runner, size, inputs.batch.num_tokens(), Execution::kOperators));
  TRY(keep_hidden(runner, size, inputs.batch.num_tokens()));
  if (!inputs.first_id) return ok_status();
  return draft({.rows = inputs.batch.wanted_rows, .first_id = *inputs.first_id});
}

Status LocalDrafts::keep_hidden(const GraphRunner& runner, std::int64_t size, std::int64_t rows) {
  const OutputView hidden = TRY(runner.executable().output(runner.bucket(size), kHidden));
  return parts_.memory().draft_hidden->keep(hidden.data, rows, parts_.stream());
}

std::optional<std::int64_t> LocalDrafts::graph_size(const ForwardBatch& batch) const {
  const GraphRunner* const runner = parts_.find_runner(RunnerRole::kDraftDecode);
  if (runner == nullptr || batch.wanted_rows.empty() || !batch.is_decode_with_drafts()) return std::nullopt;
  return round_up(runner->report().captured, batch.num_tokens());
}

Status LocalDrafts::replay(const DraftInputs& inputs, std::int64_t size) {
  GraphRunner& runner = parts_.runner(RunnerRole::kDraftDecode);
  TRY(launcher_.stage({.batch = inputs.batch, .rope_positions = inputs.rope_positions, .draft_rows = inputs.rows},
                      BatchKind::kDecode, size));
  TRY(parts_.memory().inputs.stage_rows(inputs.batch.wanted_rows, {}, size));
  TRY(launcher_.launch(runner, size, inputs.batch.num_tokens(), Execution::kGraphs, &replay_failed_));
  TRY(keep_hidden(runner, size, inputs.batch.num_tokens()));
  return parts_.memory().inputs.keep_sampled(TRY(drafts_of(runner, size)).data, *inputs.first_id,
                                             inputs.batch.num_wanted_rows(), parts_.stream());
}

Status LocalDrafts::draft(const DraftRows& from, std::span<float> logits) {
  replay_failed_ = false;
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
  return ok_status();
}

Status LocalDrafts::hand_over(std::int64_t count) {
  TRY(parts_.arena().grow(static_cast<std::size_t>(parts_.model.handed_over_bytes)));
  return parts_.memory().draft_hidden->copy_to(parts_.arena().base() + parts_.model.handed_over[0].offset, count,
                                               parts_.stream());
}

Status LocalDrafts::run_head(const DraftRows& from, std::span<float> logits) {
  GraphRunner& runner = parts_.runner(RunnerRole::kDraftHead);
  const std::int64_t count = std::ssize(from.rows);
  const std::int64_t size = runner.padded_size(count);
  TRY(parts_.memory().inputs.stage_rows(from.rows, {}, size));
  TRY(runner.make_ready(size));
  TRY(launcher_.launch(runner, size, count, Execution::kOperators));
  const OutputView drafts = TRY(drafts_of(runner, size));
  TRY(parts_.memory().inputs.keep_sampled(drafts.data, from.first_id, count, parts_.stream()));
  if (logits.empty()) return ok_status();
  TRY(parts_.stream().download(logits.data(), TRY(runner.executable().output(runner.bucket(size), kLogits)).data,
                               logits.size_bytes()));
  return parts_.stream().synchronize();  // the next run of the head overwrites the logits
}

Status LocalDrafts::fetch(std::int64_t count) {
  if (count < 0 || count > parts_.model.options.max_requests)
    return internal_error(fmt::format("{} drafts are fetched; {} fit", count, parts_.model.options.max_requests));
  TRY(allocate_host());
  const std::span<TokenId> to = ids_.first(static_cast<std::size_t>(count));
  fetched_ = to;
  return parts_.memory().inputs.download_sampled(to, parts_.stream());
}

Status LocalDrafts::allocate_host() {
  if (host_ != nullptr) return ok_status();
  const auto most = static_cast<std::size_t>(parts_.model.options.max_requests);
  host_ = TRY(parts_.model.device.allocate_host(most * sizeof(TokenId), "drafts"));
  ids_ = {reinterpret_cast<TokenId*>(host_->data()), most};
  return ok_status();
}

}  // namespace tessera
