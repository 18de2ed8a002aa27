// From logits to tokens where the head's own sampler is not enough: rows with edits, and log-probabilities.
//
// The decode graph and the head sample every batch as if there were neither, so that plain batches pay nothing. Where
// there are, the rows of logits are copied to the input of the graphs choose and logprobs, up to kMaxChoiceRows at a
// time, and the ids of choose replace those of the head.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/runner/forward_inputs.h"
#include "tessera/runner/runner_parts.h"
#include "tessera/runner/step_results.h"

namespace tessera {

// Some of a forward's wanted rows after the head, on the device.
struct HeadRows {
  std::int64_t first = 0;  // which of the wanted rows
  std::int64_t count = 0;
  OutputView logits;   // f32[count or more, vocab]
  OutputView sampled;  // i32[count or more], by the head's sampler

  // How many of them are sampled, when `total` of the wanted rows are.
  std::int64_t num_sampled(std::int64_t total) const;
  HeadRows part(std::int64_t from, std::int64_t rows) const;
};

class Chooser {
 public:
  // `parts` outlive the chooser.
  explicit Chooser(RunnerParts& parts) : parts_(parts) {}

  // Keeps the sampled ids of the rows in last_ids, and enqueues the download of log-probabilities to `results`.
  Status take(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results);

 private:
  // As many rows as the two graphs take at once.
  Status take_chunk(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results);
  Result<OutputView> choose(const ForwardInputs& inputs, const HeadRows& rows, std::int64_t sampled);
  Status read_logprobs(const HeadRows& rows, StepResults::Slot& results);
  Status copy_logits(const HeadRows& rows, std::int64_t count);

  RunnerParts& parts_;
};

}  // namespace tessera
