// Fetches models from the Hugging Face hub, or a mirror of it, into the local cache.
//
//   std::string folder = TRY(resolve_model({.path_or_id = "Qwen/Qwen3-0.6B", .download = true}, settings));
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/status.h"
#include "tessera/model/hub/hub_cache.h"
#include "tessera/model/hub/hub_settings.h"

namespace tessera {

struct PullOptions {
  ModelContent content = ModelContent::kWeights;
  bool show_progress = false;
  std::int64_t retry_delay_ms = 1000;  // doubled with each attempt
};

// Asks the hub for the revision's current commit, downloads the files that the cache lacks, and returns the snapshot's
// folder, or the first GGUF file if the model names some. The revision refers to the new commit only when all its files
// are complete. Complete and partial files stay for the next attempt after an error or a signal. Several processes may
// do this at once. not_found: no such model or revision, no access, no network; resource_exhausted: the disk is full;
// data_loss: the server's answer contradicts itself or a digest.
Result<std::string> pull_model(const HubSettings& settings, const HubModel& model, const PullOptions& options);

struct ModelRequest {
  std::string path_or_id;  // an id may end in ":" and HubModel::gguf
  std::string revision{};  // empty: main
  ModelContent content = ModelContent::kWeights;
  bool download = false;  // download what the cache lacks
  bool show_progress = false;
};

// Returns the folder or file from which to read a model: `path_or_id` itself if it exists, otherwise the snapshot in
// the hub's cache that it names. not_found if the cache lacks it and `download` is false.
Result<std::string> resolve_model(const ModelRequest& request, const HubSettings& settings);

}  // namespace tessera
