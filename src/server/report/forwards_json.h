// Writes as JSON how forwards were dispatched since the start.
#pragma once

#include "tessera/runner/forward_counters.h"
#include "tessera/server/fields/json_writer.h"

namespace tessera {

// Writes {"tokens", "padded_tokens", "by_reason": {reason: forwards}, "by_bucket": [{"runner", "size", "reason",
// "count", "tokens", "padding"}]}.
void write_forwards(JsonWriter& json, const ForwardCounters& forwards);

}  // namespace tessera
