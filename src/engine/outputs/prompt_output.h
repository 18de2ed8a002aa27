// Adds what a forward computes for a prompt besides its keys and values: log-probabilities, logits, hidden states and
// the vector pooled from them. Rows are delivered once, even if a preempted sequence computes them again.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/engine/schedule/scheduled_batch.h"
#include "tessera/runner/forward_inputs.h"

namespace tessera {

// Adds the entry's prompt rows to its sequence's result. `logits` is [wanted rows × row_size], and is read only if the
// request wants scores.
void add_prompt_rows(const ScheduledBatch::Entry& entry, const StepOutputs& outputs, int top_logprobs,
                     std::span<const float> logits, std::int64_t row_size);
// Adds the entry's hidden states to its sequence's result. `hidden` is [hidden rows × size].
void add_hidden(const ScheduledBatch::Entry& entry, std::span<const float> hidden, std::int64_t size);

}  // namespace tessera
