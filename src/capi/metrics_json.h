// Writes an engine's counters as JSON.
#pragma once

#include <string>

#include "tessera/engine/stats/engine_stats.h"

namespace tessera::capi {

// Returns {"requests": {"running", "queued", "preemptions"}, "tokens": {"prompt", "cached", "output"}, "steps",
// "forwards" (server/report/forwards_json.h), "cache": [{"usable_pages", "used_pages", "cached_pages", "page_size"}]}.
// Counters begin at 0 when the engine starts.
std::string metrics_json(const EngineStats& stats);

}  // namespace tessera::capi
