// Reads the options of tessera_open() with the command line's table of options.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/options/flags.h"
#include "tessera/options/model_source.h"
#include "tessera/runner/capture/registry.h"
#include "tessera/server/server_options.h"

namespace tessera::capi {

struct OpenOptions {
  EngineOptions engine;
  ServerOptions server;  // only the members that the protocols need are set
  ModelSource model;
  std::vector<std::string> log_levels;
  std::vector<std::string> warnings;  // warnings about options that have no effect
  std::vector<FlagValue> values;      // the options as the caller named them, for with_flags()
};

// Reads options in JSON or YAML, with the keys of a configuration file. Opens no configuration file. Calls
// `load_plugin` for each plugin that the options name. Errors name the line, the key, the value and what is accepted.
Result<OpenOptions> read_open_options(std::shared_ptr<const Registry> registry, const std::string& text,
                                      std::function<Status(const std::string& file)> load_plugin = {});

// Replaces a model's name by its folder, and sets the cache folder. Like the `tessera` program, reads this process's
// environment variables to find both folders. `content` says which parts of the model are needed.
Status find_folders(OpenOptions& options, ModelContent content);

}  // namespace tessera::capi
