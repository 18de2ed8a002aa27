// Implements --print-config: shows the final values of all flags. The values include the defaults, the settings of the
// configuration file, and the engine's own decisions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"

namespace tessera::cli {

// Returns the engine's options in a command. Returns null if the command loads no model.
const EngineOptions* engine_of(const Command& command);

// Returns each flag whose value the plan decided, together with this value in the form of a configuration file.
std::vector<std::pair<std::string, Json>> planned_values(const EnginePlan& plan);

// Returns {"page-size": 16, …, "sources": {"page-size": "default", …}}: every flag's value, or null for a flag without
// a value. A source is "command line", "file", "environment" or "default", or "engine" if the plan's value differs from
// the flag's. The JSON can be used as a configuration file with the same effect.
Json effective_config(const std::vector<FlagValue>& values, const EnginePlan* plan);

// Writes the effective configuration to standard output. Precondition: the command has engine flags, and a model's hub
// id was already replaced by its folder.
Status print_config(const CommandLine& line);

}  // namespace tessera::cli
