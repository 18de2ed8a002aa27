// Finds the folder of a model that is given by its path or by an id of the Hugging Face hub.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/model/hub/hub_cache.h"
#include "tessera/model/hub/hub_settings.h"

namespace tessera {

// Options for finding a model. `revision` and `download` have no effect on a model that is given by its path.
struct ModelSource {
  std::string revision;    // empty: main
  std::string gguf_file;   // the GGUF file in the model's folder or hub repository; empty: the path or id is complete
  std::string mmproj;      // the GGUF projector: a path, or a file beside the model; empty: found by find_model_files()
  bool no_mmproj = false;  // a projector beside the model is not used
  bool download = false;   // whether to download what the cache lacks
};

// Returns the folder, or the GGUF file, of a model given by path or id. Downloads the model first if `source` asks for
// that. Returns kNotFound for an id that the cache lacks. The error says how to get the model.
Result<std::string> find_model_folder(const std::string& path_or_id, const ModelSource& source, ModelContent content,
                                      const HubSettings& settings, bool show_progress);

// Replaces engine.model_path, a path or id, by what find_model_folder() returns, and sets engine.projector_path. The
// function looks for a projector beside the model if two conditions hold: `source` sets neither mmproj nor no_mmproj,
// and the model is not given as the path of a GGUF file. If a projector beside the model is not used, the function logs
// the reason. Returns the errors of find_model_folder() and of the functions in find_projector.h, and kInvalidArgument
// if the members of `source` contradict each other.
Status find_model_files(EngineOptions& engine, const ModelSource& source, ModelContent content,
                        const HubSettings& settings, bool show_progress);

}  // namespace tessera
