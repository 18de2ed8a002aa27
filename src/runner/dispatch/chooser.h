// Chooses tokens from logits if the head's own sampler is not enough, because rows have logit edits or want
// log-probabilities.
//
// The decode graph and the head ignore edits when they sample, so batches without edits pay nothing for them. For a
// batch with edits or log-probabilities, rows of logits are copied to the input of the graphs `choose` and `logprobs`
// (runner_spec.h), at most kMaxChoiceRows at a time. The ids that `choose` samples replace the ids that the head
// sampled.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/runner/forward_inputs.h"
#include "tessera/runner/launcher.h"
#include "tessera/runner/runner_parts.h"
#include "tessera/runner/step_results.h"

namespace tessera {

// A contiguous range of a forward's wanted rows, in device memory after the head ran.
struct HeadRows {
  std::int64_t first = 0;  // index of the first row among the wanted rows
  std::int64_t count = 0;
  OutputView logits;   // f32[count or more, vocab]
  OutputView sampled;  // i32[count or more], sampled by the head

  // Returns how many rows of this range are sampled. The forward samples only the first `total` of all wanted rows.
  std::int64_t num_sampled(std::int64_t total) const;
  HeadRows part(std::int64_t from, std::int64_t rows) const;
};

class Chooser {
 public:
  // Both arguments must outlive the chooser.
  Chooser(RunnerParts& parts, Launcher& launcher) : parts_(parts), launcher_(launcher) {}

  // Writes the sampled ids of the rows to last_ids, and enqueues the download of log-probabilities to `results`.
  Status take(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results);

 private:
  // Does the work of take() for at most kMaxChoiceRows rows. One run of `choose` and one run of `logprobs` can process
  // that many.
  Status take_chunk(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results);
  Result<OutputView> choose(const ForwardInputs& inputs, const HeadRows& rows, std::int64_t sampled);
  Status read_logprobs(const HeadRows& rows, StepResults::Slot& results);
  Status copy_logits(const HeadRows& rows, std::int64_t count);

  RunnerParts& parts_;
  Launcher& launcher_;
};

}  // namespace tessera
