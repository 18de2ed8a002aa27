// Reads from this process's environment where downloaded models are and which folder is the cache.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/model/hub/hub_settings.h"

namespace tessera::cli {

// Returns the settings of the Hugging Face hub from this process's environment.
HubSettings hub_settings();

// Replaces a model's hub id by its folder, and finds the projector of a GGUF model (find_model_files() in
// options/model_source.h). Downloads the model first if `source` asks for it. Does nothing for a command without a
// model.
Status find_model(Command& command, const ModelSource& source);

// Returns the cache folder, which keeps measurements between runs (options/cache_dir.h).
std::string cache_dir();
// Sets the cache folder of a command that runs an engine.
void use_cache_dir(Command& command);

}  // namespace tessera::cli
