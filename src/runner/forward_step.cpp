#include "tessera/runner/forward_step.h"

#include <algorithm>
#include <numeric>

#include "tessera/runner/dummy_batch.h"
#include "tessera/runner/host_floats.h"

namespace tessera {
namespace {

// The indices of a graph's outputs. They are right as written for the head graph of a model with PrefillGraphs, and for
// a decode graph whose body has one output. If the body of a decode graph has more outputs, its outputs after the first
// come between the hidden states and the logits, so run_decode() adds their number to kLogits and kSampled. The head
// graph of a model without PrefillGraphs does not output hidden states, so run_head() subtracts 1 from kLogits and
// kSampled.
constexpr std::size_t kHidden = 0;
constexpr std::size_t kLogits = 1;
constexpr std::size_t kSampled = 2;

}  // namespace

ForwardStep::ForwardStep(RunnerParts& parts)
    : parts_(parts),
      launcher_(parts),
      chooser_(parts, launcher_),
      in_order_(static_cast<std::size_t>(max_head_rows(parts.model.options))) {
  std::iota(in_order_.begin(), in_order_.end(), 0);
}

Status ForwardStep::run(const ForwardInputs& inputs, const Decision& decision, StepResults::Slot& results) {
  replay_failed_ = false;
  if (decision.runner == RunnerKind::kDecode) return run_decode(inputs, decision, results);
  TRY(run_body(inputs, decision));
  if (!parts_.model.graphs.has_head) return ok_status();
  TRY(run_head(inputs, decision.adapters, results));
  return parts_.model.graphs.prefill && !inputs.hidden_states.empty() ? run_head_for_hidden(inputs, decision.adapters)
                                                                      : ok_status();
}

// Runs the body, or the decode graph, on padding rows. Since a forward needs at least one token, the batch has one
// dummy token on the reserved page.
Status ForwardStep::run_idle_forward(const Decision& decision) {
  const bool decodes = decision.runner == RunnerKind::kDecode;
  GraphRunner& runner = parts_.runner(decodes ? RunnerRole::kDecode : RunnerRole::kPrefill);
  const ForwardBatch dummy =
      dummy_batch(1, decodes, parts_.model.options, parts_.model.graphs.body.cache_groups, parts_.model.vocab_size);
  if (decodes) {
    TRY(stage_decode({.batch = dummy}, decision.size, {}));
  } else {
    TRY(launcher_.stage({.batch = dummy}, BatchKind::kExtend, decision.size));
  }
  const bool captured = decision.runner != RunnerKind::kEager;
  if (!captured) TRY(runner.make_ready(decision.size));
  return launcher_.launch(runner, decision.size, dummy.num_tokens(),
                          captured ? Execution::kGraphs : Execution::kOperators, &replay_failed_);
}

Status ForwardStep::stage_decode(const StagedTokens& tokens, std::int64_t size, std::span<const SampleRow> sampling) {
  TRY(launcher_.stage(tokens, BatchKind::kDecode, size));
  return parts_.memory().inputs.stage_rows(std::span(in_order_).first(static_cast<std::size_t>(size)), sampling, size);
}

Status ForwardStep::run_decode(const ForwardInputs& inputs, const Decision& decision, StepResults::Slot& results) {
  GraphRunner& runner = parts_.runner(with_adapters(RunnerRole::kDecode, decision.adapters));
  const std::int64_t size = decision.size;
  TRY(stage_decode(inputs.tokens(), size, inputs.sampling));
  TRY(launcher_.launch(runner, size, inputs.batch.num_tokens(),
                       inputs.replay_graphs ? Execution::kGraphs : Execution::kOperators, &replay_failed_));
  if (!parts_.model.graphs.has_head) return ok_status();
  const Executable& decode = runner.executable();
  const ir::Bucket bucket = runner.bucket(size);
  if (!inputs.hidden_states.empty())
    TRY(read_hidden(TRY(decode.output(bucket, kHidden)), inputs.hidden_rows, inputs.hidden_states));
  TRY(keep_for_drafts(inputs, decode, bucket));
  // The number of the body's outputs after the hidden states.
  const std::size_t further = parts_.model.graphs.body.outputs.size() - 1;
  const OutputView logits = TRY(decode.output(bucket, kLogits + further));
  const OutputView sampled = TRY(decode.output(bucket, kSampled + further));
  return take_rows(inputs, {.first = 0, .count = inputs.batch.num_wanted_rows(), .logits = logits, .sampled = sampled},
                   results);
}

// Stages the body's plans and inputs. Treats every row as wanted in two cases: if hidden states are wanted, because any
// row may be read then, and in debug mode, because debug mode searches all rows for NaNs.
Status ForwardStep::stage_body(const ForwardInputs& inputs, std::int64_t size) {
  const bool wants_all = !inputs.hidden_states.empty() || parts_.debug() != nullptr;
  if (!parts_.model.graphs.prefill || !wants_all) return launcher_.stage(inputs.tokens(), BatchKind::kExtend, size);
  ForwardBatch all = inputs.batch;
  want_all_rows(all);
  return launcher_.stage({.batch = all, .rope_positions = inputs.rope_positions}, BatchKind::kExtend, size);
}

Status ForwardStep::stage_prefill(const ForwardInputs& inputs, std::int64_t size) {
  TRY(stage_body(inputs, size));
  return parts_.model.graphs.has_head && inputs.batch.num_wanted_rows() > 0 ? stage_head(inputs, 0) : ok_status();
}

Status ForwardStep::run_body(const ForwardInputs& inputs, const Decision& decision) {
  GraphRunner& runner = parts_.runner(with_adapters(RunnerRole::kPrefill, decision.adapters));
  TRY(stage_prefill(inputs, decision.size));
  const bool captured = decision.runner == RunnerKind::kPrefill;
  if (!captured) TRY(runner.make_ready(decision.size));
  const Execution graphs = decision.form == GraphForm::kFull ? Execution::kFullGraph : Execution::kGraphs;
  TRY(launcher_.launch(runner, decision.size, inputs.batch.num_tokens(),
                       captured && inputs.replay_graphs ? graphs : Execution::kOperators, &replay_failed_));
  const ir::Bucket bucket = runner.bucket(decision.size);
  if (!parts_.model.graphs.prefill && !inputs.hidden_states.empty())
    TRY(read_hidden(TRY(runner.executable().output(bucket, 0)), inputs.hidden_rows, inputs.hidden_states));
  TRY(keep_for_drafts(inputs, runner.executable(), bucket));
  // With planned memory the outputs already lie where the head reads them. With isolated memory each output has an
  // address of its own and must be copied there.
  for (std::size_t i = 0; i < parts_.model.handed_over.size(); ++i) {
    const OutputView made = TRY(runner.executable().output(bucket, i));
    const DeviceAddress place = parts_.arena().base() + parts_.model.handed_over[i].offset;
    if (made.data == place) continue;
    TRY(parts_.arena().grow(static_cast<std::size_t>(parts_.model.handed_over_bytes)));
    TRY(parts_.stream().copy(place, made.data, static_cast<std::size_t>(made.bytes())));
  }
  return ok_status();
}

Status ForwardStep::keep_for_drafts(const ForwardInputs& inputs, const Executable& made, const ir::Bucket& bucket) {
  if (parts_.memory().draft_hidden == nullptr || !parts_.model.graphs.draft->body_output) return ok_status();
  const OutputView from = TRY(made.output(bucket, *parts_.model.graphs.draft->body_output));
  return parts_.memory().draft_hidden->keep(from.data, inputs.batch.num_tokens(), parts_.stream());
}

// Stages the inputs for one run of the head. The run takes the wanted rows from index `first` on, as many as the head's
// largest size allows.
Status ForwardStep::stage_head(const ForwardInputs& inputs, std::size_t first) {
  const GraphRunner& runner = parts_.runner(RunnerRole::kHead);
  const std::span<const std::int32_t> rest = std::span(inputs.batch.wanted_rows).subspan(first);
  const std::size_t count = std::min(static_cast<std::size_t>(runner.spec().ladder.back()), rest.size());
  const std::size_t begin = std::min(first, inputs.sampling.size());
  return parts_.memory().inputs.stage_rows(
      rest.first(count), inputs.sampling.subspan(begin, std::min(count, inputs.sampling.size() - begin)),
      runner.padded_size(static_cast<std::int64_t>(count)));
}

Status ForwardStep::run_head(const ForwardInputs& inputs, bool adapters, StepResults::Slot& results) {
  GraphRunner& runner = parts_.runner(with_adapters(RunnerRole::kHead, adapters));
  const std::int64_t total = inputs.batch.num_wanted_rows();
  const std::int64_t chunk = runner.spec().ladder.back();
  // Without PrefillGraphs the head's outputs do not begin with the hidden states, so their indices are lower by one.
  const std::size_t before = parts_.model.graphs.prefill ? 0 : 1;
  for (std::int64_t first = 0; first < total; first += chunk) {
    const std::int64_t count = std::min(chunk, total - first);
    const std::int64_t size = runner.padded_size(count);
    // stage_body() staged the first rows with the body's inputs.
    if (first > 0) TRY(stage_head(inputs, static_cast<std::size_t>(first)));
    TRY(runner.make_ready(size));
    TRY(launcher_.launch(runner, size, count, Execution::kOperators));
    const ir::Bucket bucket = runner.bucket(size);
    const OutputView logits = TRY(runner.executable().output(bucket, kLogits - before));
    const OutputView sampled = TRY(runner.executable().output(bucket, kSampled - before));
    TRY(take_rows(inputs, {.first = first, .count = count, .logits = logits, .sampled = sampled}, results));
  }
  return ok_status();
}

Status ForwardStep::take_rows(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results) {
  Stream& stream = parts_.stream();
  if (!inputs.logits.empty()) {
    const std::span<float> part = inputs.logits.subspan(static_cast<std::size_t>(rows.first * parts_.model.vocab_size),
                                                        static_cast<std::size_t>(rows.count * parts_.model.vocab_size));
    TRY(launcher_.check_fresh(rows.logits));
    TRY(stream.download(part.data(), rows.logits.data, part.size_bytes()));
    TRY(stream.synchronize());  // the next run of the head overwrites the logits
  }
  if (inputs.needs_choice()) return chooser_.take(inputs, rows, results);
  const std::int64_t sampled = rows.num_sampled(static_cast<std::int64_t>(inputs.sampling.size()));
  TRY(launcher_.check_fresh(rows.sampled));
  return sampled == 0 ? ok_status()
                      : parts_.memory().inputs.keep_sampled(rows.sampled.data, rows.first, sampled, stream);
}

Status ForwardStep::run_head_for_hidden(const ForwardInputs& inputs, bool adapters) {
  GraphRunner& runner = parts_.runner(with_adapters(RunnerRole::kHead, adapters));
  const std::span<const std::int32_t> rows = inputs.hidden_rows;
  const std::int64_t total = rows.empty() ? inputs.batch.num_tokens() : std::ssize(rows);
  const std::int64_t chunk = runner.spec().ladder.back();
  for (std::int64_t first = 0; first < total; first += chunk) {
    const std::int64_t count = std::min(chunk, total - first);
    const std::int64_t size = runner.padded_size(count);
    hidden_rows_.resize(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      hidden_rows_[static_cast<std::size_t>(i)] =
          rows.empty() ? static_cast<std::int32_t>(first + i) : rows[static_cast<std::size_t>(first + i)];
    TRY(parts_.memory().inputs.stage_rows(hidden_rows_, {}, size));
    TRY(runner.make_ready(size));
    TRY(launcher_.launch(runner, size, count, Execution::kOperators));
    const auto values = static_cast<std::size_t>(parts_.model.hidden_size);
    TRY(read_hidden(TRY(runner.executable().output(runner.bucket(size), kHidden)), {},
                    inputs.hidden_states.subspan(static_cast<std::size_t>(first) * values,
                                                 static_cast<std::size_t>(count) * values)));
  }
  return ok_status();
}

// Downloads consecutive rows with one copy.
Status ForwardStep::read_hidden(const OutputView& hidden, std::span<const std::int32_t> rows, std::span<float> to) {
  TRY(launcher_.check_fresh(hidden));
  const ir::DType dtype = parts_.model.graphs.body.value(parts_.model.graphs.body.outputs[0]).type.dtype;
  const std::size_t bytes = to.size() * ir::dtype_size(dtype);
  hidden_host_.resize(std::max(hidden_host_.size(), bytes));
  if (rows.empty()) TRY(parts_.stream().download(hidden_host_.data(), hidden.data, bytes));
  const std::size_t row_bytes = rows.empty() ? 0 : bytes / rows.size();
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = begin + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    TRY(parts_.stream().download(hidden_host_.data() + begin * row_bytes,
                                 hidden.data + static_cast<std::size_t>(rows[begin]) * row_bytes,
                                 (end - begin) * row_bytes));
    begin = end;
  }
  TRY(parts_.stream().synchronize());
  return widen_floats(hidden_host_.data(), dtype, to);
}

}  // namespace tessera
