// GET /get_server_info: what the engine was made with, what it decided, and what it has done.
#pragma once

#include <string>

#include "tessera/engine/engine.h"
#include "tessera/server/json_writer.h"
#include "tessera/server/served_model.h"

namespace tessera {

// On the engine's thread, or before it has one.
std::string server_info_body(const Engine& engine, const ServedModel& model);

}  // namespace tessera
