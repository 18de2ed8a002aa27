// Finds models that are named by an id of the hub.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/model/hub/hub_cache.h"
#include "tessera/model/hub/hub_settings.h"

namespace tessera {

// Options of a model that is named by an id of the hub.
struct ModelSource {
  std::string revision;   // empty: main
  bool download = false;  // downloads what the cache lacks
};

// Returns the folder of a model given by path or id. Downloads the model first if `source` asks for that. Returns
// kNotFound for an id that the cache lacks; the error says how to get it.
Result<std::string> find_model_folder(const std::string& path_or_id, const ModelSource& source, ModelContent content,
                                      const HubSettings& settings, bool show_progress);

}  // namespace tessera
