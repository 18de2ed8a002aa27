// Finds the folder of a model that is given by its path or by an id of the Hugging Face hub.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/model/hub/hub_cache.h"
#include "tessera/model/hub/hub_settings.h"

namespace tessera {

// Options for finding a model. Only `gguf_file` has an effect on a model that is given by its path.
struct ModelSource {
  std::string revision;   // empty: main
  std::string gguf_file;  // the GGUF file in the model's folder or hub repository; empty: the path or id is complete
  bool download = false;  // downloads what the cache lacks
};

// Returns the folder, or the GGUF file, of a model given by path or id. Downloads the model first if `source` asks for
// that. Returns kNotFound for an id that the cache lacks; the error says how to get it.
Result<std::string> find_model_folder(const std::string& path_or_id, const ModelSource& source, ModelContent content,
                                      const HubSettings& settings, bool show_progress);

}  // namespace tessera
