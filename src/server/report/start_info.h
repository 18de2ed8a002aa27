// When an engine's start did what, for GET /get_server_info and the program's benchmark.
#pragma once

#include "tessera/base/json.h"
#include "tessera/engine/engine.h"

namespace tessera {

// {"phases": [{"name", "begin_s", "end_s"}, …], "total_s", "uncovered_s", "first_token": {"begin_s", "end_s"} or null},
// in seconds from the process's start: of phases that may overlap, to the end of the last one, and the part of that
// which no phase covers. On the engine's thread, or before it has one.
Json start_json(const Engine& engine);

}  // namespace tessera
