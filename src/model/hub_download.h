// Fetches models from the Hugging Face hub, or a mirror of it, into the local cache.
//
//   std::string folder = TRY(resolve_model({.path_or_id = "Qwen/Qwen3-0.6B", .download = true}, settings));
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/status.h"
#include "tessera/model/hub_cache.h"
#include "tessera/model/hub_settings.h"

namespace tessera {

struct PullOptions {
  ModelContent content = ModelContent::kWeights;
  bool show_progress = false;
  std::int64_t retry_delay_ms = 1000;  // doubled with each attempt
};

// Asks the hub what the revision is now and fetches what the cache lacks of it; returns the snapshot's folder. The
// revision points there only once all is there. Files that came in full, and the parts of others, stay for the next
// attempt whatever ends this one, a signal included. Safe beside other processes that do the same.
// not_found: no such model or revision, no access, no network; resource_exhausted: the disk is full; data_loss: the
// server's answer contradicts itself or a digest.
Result<std::string> pull_model(const HubSettings& settings, const HubModel& model, const PullOptions& options);

struct ModelRequest {
  std::string path_or_id;
  std::string revision{};  // empty: main
  ModelContent content = ModelContent::kWeights;
  bool download = false;  // fetch what the cache lacks
  bool show_progress = false;
};

// The folder or file to read a model from: `path_or_id` itself where that is there, otherwise the snapshot in the hub's
// cache that it names.
Result<std::string> resolve_model(const ModelRequest& request, const HubSettings& settings);

}  // namespace tessera
