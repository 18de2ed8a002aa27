// Handles the token that a forward sampled for a sequence: adds the token's text and log-probabilities, and finds out
// whether the token ends the request.
#pragma once

#include <span>

#include "tessera/base/strong_id.h"
#include "tessera/engine/schedule/scheduled_batch.h"
#include "tessera/runner/forward_inputs.h"
#include "tessera/runner/step_profiler.h"

namespace tessera {

// Adds the token sampled from the entry's row to the entry's sequence and to `event`, unless the token ends the text
// and is not kept. `end_ids` are the tokens that end a text. `profiler` may be null.
void add_token(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry, const StepOutputs& outputs,
               std::span<const TokenId> end_ids, StepProfiler* profiler, RequestEvent& event);

}  // namespace tessera
