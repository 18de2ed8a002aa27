#include "tessera/runner/forward_step.h"

#include <algorithm>
#include <numeric>

#include "tessera/runner/host_floats.h"

namespace tessera {
namespace {

// Outputs of the head and decode graphs, in the order of their chains.
constexpr std::size_t kHeadLogits = 0;
constexpr std::size_t kHeadSampled = 1;
constexpr std::size_t kDecodeHidden = 0;
constexpr std::size_t kDecodeLogits = 1;
constexpr std::size_t kDecodeSampled = 2;

}  // namespace

ForwardStep::ForwardStep(RunnerParts& parts)
    : parts_(parts), chooser_(parts), in_order_(static_cast<std::size_t>(max_head_rows(parts.options))) {
  std::iota(in_order_.begin(), in_order_.end(), 0);
}

Status ForwardStep::run(const ForwardInputs& inputs, const Decision& decision, StepResults::Slot& results) {
  replay_failed_ = false;
  if (decision.runner == RunnerKind::kDecode) return run_decode(inputs, decision.size, results);
  TRY(run_body(inputs, decision));
  return parts_.graphs.has_head ? run_head(inputs, results) : ok_status();
}

Status ForwardStep::stage_decode(const StagedTokens& tokens, std::int64_t size, std::span<const SampleRow> sampling) {
  const std::int64_t rows = size * parts_.options.decode_query_length;
  TRY(parts_.stage(tokens, parts_.runner(RunnerRole::kDecode).spec().batches, rows));
  return parts_.inputs->stage_rows(std::span(in_order_).first(static_cast<std::size_t>(rows)), sampling, rows);
}

Status ForwardStep::run_decode(const ForwardInputs& inputs, std::int64_t size, StepResults::Slot& results) {
  GraphRunner& runner = parts_.runner(RunnerRole::kDecode);
  TRY(stage_decode(inputs.tokens(), size, inputs.sampling));
  TRY(parts_.launch(runner, size, inputs.batch.num_tokens(),
                    inputs.replay_graphs ? Execution::kGraphs : Execution::kOperators, &replay_failed_));
  if (!parts_.graphs.has_head) return ok_status();
  const Executable& decode = runner.executable();
  const ir::Bucket bucket = runner.bucket(size);
  if (!inputs.hidden_states.empty()) TRY(read_hidden(TRY(decode.output(bucket, kDecodeHidden)), inputs));
  return take_rows(inputs,
                   {.first = 0,
                    .count = inputs.batch.num_wanted_rows(),
                    .logits = TRY(decode.output(bucket, kDecodeLogits)),
                    .sampled = TRY(decode.output(bucket, kDecodeSampled))},
                   results);
}

Status ForwardStep::run_body(const ForwardInputs& inputs, const Decision& decision) {
  GraphRunner& runner = parts_.runner(RunnerRole::kPrefill);
  TRY(parts_.stage(inputs.tokens(), BatchKind::kExtend, decision.size));
  if (parts_.graphs.has_head && inputs.batch.num_wanted_rows() > 0) TRY(stage_head(inputs, 0));
  const bool captured = decision.runner == RunnerKind::kPrefill;
  if (!captured) TRY(runner.make_ready(decision.size));
  const Execution graphs = decision.form == GraphForm::kFull ? Execution::kFullGraph : Execution::kGraphs;
  TRY(parts_.launch(runner, decision.size, inputs.batch.num_tokens(),
                    captured && inputs.replay_graphs ? graphs : Execution::kOperators, &replay_failed_));
  // In the planned memory the output lies where the head reads it; isolated, it has a place of its own.
  const OutputView hidden = TRY(runner.executable().output(runner.bucket(decision.size), 0));
  if (!inputs.hidden_states.empty()) TRY(read_hidden(hidden, inputs));
  if (hidden.data == parts_.arena->base()) return ok_status();
  TRY(parts_.arena->grow(static_cast<std::size_t>(parts_.hidden_bytes)));
  return parts_.stream->copy(parts_.arena->base(), hidden.data, static_cast<std::size_t>(hidden.bytes()));
}

// The rows from `first` on that the head takes at once.
Status ForwardStep::stage_head(const ForwardInputs& inputs, std::size_t first) {
  const GraphRunner& runner = parts_.runner(RunnerRole::kHead);
  const std::span<const std::int32_t> rest = std::span(inputs.batch.wanted_rows).subspan(first);
  const std::size_t count = std::min(static_cast<std::size_t>(runner.spec().ladder.back()), rest.size());
  const std::size_t begin = std::min(first, inputs.sampling.size());
  return parts_.inputs->stage_rows(rest.first(count),
                                   inputs.sampling.subspan(begin, std::min(count, inputs.sampling.size() - begin)),
                                   runner.padded_size(static_cast<std::int64_t>(count)));
}

Status ForwardStep::run_head(const ForwardInputs& inputs, StepResults::Slot& results) {
  GraphRunner& runner = parts_.runner(RunnerRole::kHead);
  const std::int64_t total = inputs.batch.num_wanted_rows();
  const std::int64_t chunk = runner.spec().ladder.back();
  for (std::int64_t first = 0; first < total; first += chunk) {
    const std::int64_t count = std::min(chunk, total - first);
    const std::int64_t size = runner.padded_size(count);
    if (first > 0) TRY(stage_head(inputs, static_cast<std::size_t>(first)));  // the first went with the body's inputs
    TRY(runner.make_ready(size));
    TRY(parts_.launch(runner, size, count, Execution::kOperators));
    const ir::Bucket bucket = runner.bucket(size);
    const HeadRows made{.first = first,
                        .count = count,
                        .logits = TRY(runner.executable().output(bucket, kHeadLogits)),
                        .sampled = TRY(runner.executable().output(bucket, kHeadSampled))};
    TRY(take_rows(inputs, made, results));
  }
  return ok_status();
}

Status ForwardStep::take_rows(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results) {
  Stream& stream = *parts_.stream;
  if (!inputs.logits.empty()) {
    const std::span<float> part = inputs.logits.subspan(static_cast<std::size_t>(rows.first * parts_.vocab_size),
                                                        static_cast<std::size_t>(rows.count * parts_.vocab_size));
    TRY(parts_.check_fresh(rows.logits));
    TRY(stream.download(part.data(), rows.logits.data, part.size_bytes()));
    TRY(stream.synchronize());  // the next chunk overwrites the logits
  }
  if (inputs.needs_choice()) return chooser_.take(inputs, rows, results);
  const std::int64_t sampled = rows.num_sampled(static_cast<std::int64_t>(inputs.sampling.size()));
  TRY(parts_.check_fresh(rows.sampled));
  return sampled == 0 ? ok_status() : parts_.inputs->keep_sampled(rows.sampled.data, rows.first, sampled, stream);
}

// One download for each run of neighbouring rows.
Status ForwardStep::read_hidden(const OutputView& hidden, const ForwardInputs& inputs) {
  TRY(parts_.check_fresh(hidden));
  const ir::DType dtype = parts_.graphs.body.value(parts_.graphs.body.outputs[0]).type.dtype;
  const std::span<float> to = inputs.hidden_states;
  const std::size_t bytes = to.size() * ir::dtype_size(dtype);
  hidden_host_.resize(std::max(hidden_host_.size(), bytes));
  const std::span<const std::int32_t> rows = inputs.hidden_rows;
  if (rows.empty()) TRY(parts_.stream->download(hidden_host_.data(), hidden.data, bytes));
  const std::size_t row_bytes = rows.empty() ? 0 : bytes / rows.size();
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = begin + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    TRY(parts_.stream->download(hidden_host_.data() + begin * row_bytes,
                                hidden.data + static_cast<std::size_t>(rows[begin]) * row_bytes,
                                (end - begin) * row_bytes));
    begin = end;
  }
  TRY(parts_.stream->synchronize());
  return widen_floats(hidden_host_.data(), dtype, to);
}

}  // namespace tessera
