// Where a model comes from that is named by an id of the hub.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/model/hub/hub_cache.h"
#include "tessera/model/hub/hub_settings.h"

namespace tessera {

// What goes with a model's name where that is an id of the hub.
struct ModelSource {
  std::string revision;   // empty: main
  bool download = false;  // fetch what the cache lacks
};

// The folder to read, of a path or an id, fetching the model first if `source` asks for that. An id that the cache
// lacks is kNotFound, which says how to get it.
Result<std::string> find_model_folder(const std::string& path_or_id, const ModelSource& source, ModelContent content,
                                      const HubSettings& settings, bool show_progress);

}  // namespace tessera
