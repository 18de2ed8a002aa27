#include "tessera/runner/dispatch/chooser.h"

#include <algorithm>

#include "tessera/model/sampler.h"
#include "tessera/ops/sampling/top_logprobs.h"

namespace tessera {

std::int64_t HeadRows::num_sampled(std::int64_t total) const {
  return std::clamp<std::int64_t>(total - first, 0, count);
}

HeadRows HeadRows::part(std::int64_t from, std::int64_t rows) const {
  const auto rows_of = [&](OutputView view) {
    view.data += view.bytes() / view.dim(0) * from;
    view.dims[0] = rows;
    return view;
  };
  return {.first = first + from, .count = rows, .logits = rows_of(logits), .sampled = rows_of(sampled)};
}

Status Chooser::take(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results) {
  const auto total = static_cast<std::int64_t>(inputs.sampling.size());
  std::int64_t chunk = 0;
  for (std::int64_t first = 0; first < rows.count; first += chunk) {
    chunk = std::min(kMaxChoiceRows, rows.count - first);
    if (inputs.has_edits()) {
      const HeadRows part = rows.part(first, chunk);
      if (const std::int64_t sampled = part.num_sampled(total); sampled > 0) {
        const std::int64_t fit = parts_.memory().edits.rows_that_fit(*inputs.edits, part.first, sampled);
        if (fit < sampled) chunk = fit;
      }
    }
    TRY(take_chunk(inputs, rows.part(first, chunk), results));
  }
  return ok_status();
}

Status Chooser::take_chunk(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results) {
  const std::int64_t sampled = rows.num_sampled(static_cast<std::int64_t>(inputs.sampling.size()));
  OutputView ids = rows.sampled;
  if (inputs.has_edits() && sampled > 0) ids = TRY(choose(inputs, rows, sampled));
  TRY(launcher_.check_fresh(ids));
  if (sampled > 0) TRY(parts_.memory().inputs.keep_sampled(ids.data, rows.first, sampled, parts_.stream()));
  if (inputs.logprob_targets.empty()) return ok_status();
  const auto first_given = static_cast<std::size_t>(rows.first + sampled);
  const auto num_given = static_cast<std::size_t>(rows.count - sampled);
  TRY(parts_.memory().edits.stage_targets(ids.data, sampled, inputs.logprob_targets.subspan(first_given, num_given),
                                          parts_.stream()));
  return read_logprobs(rows, results);
}

// Runs the graph `choose` (RunnerRole::kChoose) on the first `sampled` rows, and returns the sampled ids in device
// memory. Rows with edits are sampled from the edited logits. Rows without edits are sampled from the head's logits.
Result<OutputView> Chooser::choose(const ForwardInputs& inputs, const HeadRows& rows, std::int64_t sampled) {
  GraphRunner& runner = parts_.runner(RunnerRole::kChoose);
  const std::int64_t size = runner.padded_size(sampled);
  const auto first = static_cast<std::size_t>(rows.first);
  const auto count = static_cast<std::size_t>(sampled);
  TRY(runner.make_ready(size));
  TRY(copy_logits(rows, sampled));
  TRY(parts_.memory().edits.stage_edits(*inputs.edits, rows.first, sampled, size, parts_.stream()));
  TRY(parts_.memory().inputs.stage_rows(std::span(inputs.batch.wanted_rows).subspan(first, count),
                                        inputs.sampling.subspan(first, count), size));
  TRY(launcher_.launch(runner, size, sampled, Execution::kOperators));
  return runner.executable().output(runner.bucket(size), 0);
}

Status Chooser::read_logprobs(const HeadRows& rows, StepResults::Slot& results) {
  GraphRunner& runner = parts_.runner(RunnerRole::kLogprobs);
  const std::int64_t size = runner.padded_size(rows.count);
  TRY(runner.make_ready(size));
  TRY(copy_logits(rows, rows.count));
  TRY(launcher_.launch(runner, size, rows.count, Execution::kOperators));
  const auto first = static_cast<std::size_t>(rows.first);
  const auto count = static_cast<std::size_t>(rows.count);
  const auto download = [&](std::size_t output, auto to) -> Status {
    const OutputView from = TRY(runner.executable().output(runner.bucket(size), output));
    TRY(launcher_.check_fresh(from));
    return parts_.stream().download(to.data(), from.data, to.size_bytes());
  };
  TRY(download(0, results.logprobs.subspan(first, count)));
  if (results.top == 0) return ok_status();
  TRY(download(1, results.top_ids.subspan(first * kMaxTopLogprobs, count * kMaxTopLogprobs)));
  return download(2, results.top_logprobs.subspan(first * kMaxTopLogprobs, count * kMaxTopLogprobs));
}

// Copies the logits to the input that the graphs `choose` and `logprobs` share. `choose` edits the copy in place.
Status Chooser::copy_logits(const HeadRows& rows, std::int64_t count) {
  const std::int64_t row_bytes = parts_.model.vocab_size * static_cast<std::int64_t>(sizeof(float));
  TRY(launcher_.check_fresh(rows.logits));
  // A planned arena already has this size. An arena of a runner with isolated memory may have to grow.
  TRY(parts_.arena().grow(static_cast<std::size_t>(parts_.model.choice_logits_offset + kMaxChoiceRows * row_bytes)));
  return parts_.stream().copy(parts_.arena().base() + parts_.model.choice_logits_offset, rows.logits.data,
                              static_cast<std::size_t>(count * row_bytes));
}

}  // namespace tessera
