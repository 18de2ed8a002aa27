// The flags that all commands share: model, memory, graphs, logs.
#pragma once

#include <string>
#include <vector>

#include "tessera/cli/flags.h"
#include "tessera/cli/options.h"
#include "tessera/engine/engine_plan.h"

namespace tessera::cli {

// What they say beside EngineOptions.
struct CommonFlags {
  ModelSource model;
  std::vector<std::string> log_levels;
  bool enable_piecewise = false;
  bool trust_remote_code = false;
};

// `engine` and `common` are filled when the flags are parsed.
void add_engine_flags(CommandFlags& add, EngineOptions& engine, CommonFlags& common);
// Those of them that need no model: the last ones of each command.
void add_other_flags(CommandFlags& add, CommonFlags& common);

// About flags that are accepted and do nothing more.
std::vector<std::string> warnings_about(const EngineOptions& engine, const CommonFlags& common);

}  // namespace tessera::cli
