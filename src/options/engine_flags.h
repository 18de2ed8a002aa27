// Defines the flags that all commands share: model, memory, graphs, logs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/engine/engine_options.h"
#include "tessera/options/flags.h"
#include "tessera/options/foreign_flags.h"
#include "tessera/options/model_source.h"
#include "tessera/runner/capture/registry.h"

namespace tessera {

// Values of flags for which EngineOptions has no member.
struct CommonFlags {
  std::shared_ptr<const Registry> registry;  // the registry for the engine's options
  // Loads a plugin into `registry`. The parser calls this function before it reads the flags whose values may name what
  // the plugin adds. Null if the program loads no plugins.
  std::function<Status(const std::string& file)> load_plugin{};
  ModelSource model{};
  std::vector<std::string> log_levels{};
  bool enable_piecewise = false;
  bool cudagraph_gc = false;
  bool disable_cost_measurement = false;
  std::int64_t torch_compile_max_bs = 0;  // 0: not given
  bool trust_remote_code = false;
  bool print_config = false;
  bool serves = false;  // whether the command is the server, which takes MODEL and --seed and defines its own --dp-size
  ForeignFlags foreign{};
  const FlagParser* program = nullptr;  // the program, which the commands `help`, `completion` and `man` describe
};

// Adds the flags. Parsing them fills `engine` and `common`.
void add_engine_flags(CommandFlags& add, EngineOptions& engine, CommonFlags& common);
// Adds --log-level and --help, which commands without a model have too. The help lists them last, so call this
// function after adding the other flags.
void add_other_flags(CommandFlags& add, CommonFlags& common);

// Checks and completes the options that depend on several flags. Call it after all flags are taken.
Status finish_engine_flags(EngineOptions& engine, const CommonFlags& common);

// Returns warnings about accepted flags that are deprecated, have no effect, or do something else than users may
// expect.
std::vector<std::string> warnings_about(const EngineOptions& engine, const CommonFlags& common);

}  // namespace tessera
