// GET /get_server_info: reports the engine's options, the plan made from them, and the engine's start and counters.
#pragma once

#include <string>
#include <string_view>

#include "tessera/engine/engine.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/served_model.h"

namespace tessera {

// The weight version in answers of SGLang's form. It is constant, because weights are not replaced while a server runs.
inline constexpr std::string_view kWeightVersion = "default";

// Returns the engine's options as JSON.
std::string options_json(const EngineOptions& options);

// Returns the answer's body. Call it on the engine's thread, or before the engine has one.
std::string server_info_body(const Engine& engine, const ServedModel& model);

}  // namespace tessera
