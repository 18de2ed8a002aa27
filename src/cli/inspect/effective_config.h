// --print-config: what a command line comes to, once defaults, configuration file and the engine's own decisions are
// in.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/engine/engine_plan.h"

namespace tessera::cli {

// The engine that a command runs; null where it loads no model.
const EngineOptions* engine_of(const Command& command);

// Flags whose values the plan decided, and those values as a configuration file has them.
std::vector<std::pair<std::string, Json>> planned_values(const EnginePlan& plan);

// {"page-size": 16, …, "sources": {"page-size": "default", …}}: every flag's value, null where it was not given and
// nobody decides. A source is "command line", "file", "environment", "default" or, where `plan` has another value than
// was given, "engine". The JSON is a configuration file that comes to the same again.
Json effective_config(const std::vector<FlagValue>& values, const EnginePlan* plan);

// Writes the effective configuration to standard output. Precondition: a command with engine flags; a model's name of
// the hub was resolved.
Status print_config(const CommandLine& line);

}  // namespace tessera::cli
