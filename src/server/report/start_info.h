// Reports the phases of an engine's start, for GET /get_server_info and the benchmark command.
#pragma once

#include "tessera/base/json.h"
#include "tessera/engine/engine.h"

namespace tessera {

// Returns {"phases": [{"name", "begin_s", "end_s"}, …], "total_s", "uncovered_s", "first_token": {"begin_s", "end_s"}
// or null}. Times are seconds since the process started. Phases may overlap. total_s is the end of the last phase.
// uncovered_s is the part of the time up to total_s that no phase covers. Call it on the engine's thread, or before the
// engine has one.
Json start_json(const Engine& engine);

}  // namespace tessera
