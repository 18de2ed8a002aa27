// What tessera_open is given, read by the table of options that the command line has.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/options/flags.h"
#include "tessera/options/model_source.h"
#include "tessera/runner/capture/registry.h"
#include "tessera/server/server_options.h"

namespace tessera::capi {

struct OpenOptions {
  EngineOptions engine;
  ServerOptions server;  // of it, what the protocols need
  ModelSource model;
  std::vector<std::string> log_levels;
  std::vector<std::string> warnings;  // about options that do nothing more
  std::vector<FlagValue> values;      // for option names in messages
};

// Reads options from JSON or YAML with the keys of a configuration file. Nothing is read but the text. Errors name
// line, key, value and what is accepted. `load_plugin`: CommonFlags::load_plugin.
Result<OpenOptions> read_open_options(std::shared_ptr<const Registry> registry, const std::string& text,
                                      std::function<Status(const std::string& file)> load_plugin = {});

// Puts the folder in the place of a model's name, and the cache folder in: by this process's environment, as the
// program does. `content`: what of the model is read.
Status find_folders(OpenOptions& options, ModelContent content);

}  // namespace tessera::capi
