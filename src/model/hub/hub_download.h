// Downloads models from the Hugging Face hub, or from a mirror of it, into the local cache.
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
  std::int64_t retry_delay_ms = 1000;  // doubled after each attempt
};

// Asks the hub for the revision's current commit and downloads the files that the cache lacks. Returns the snapshot's
// folder, or the first GGUF file if model.gguf selects one. The revision points to the new commit only after all files
// of that commit are complete. After an error or a signal, complete and partial files stay for the next attempt.
// Several processes may call this at once. Returns not_found if the model or revision does not exist, if the hub
// refuses access, or if the hub cannot be reached. Returns failed_precondition if settings.offline is true, and
// resource_exhausted if the disk is full. Returns data_loss if the server's answer is inconsistent, or if downloaded
// bytes contradict a digest.
Result<std::string> pull_model(const HubSettings& settings, const HubModel& model, const PullOptions& options);

struct ModelRequest {
  std::string path_or_id;          // an id may be followed by ":" and a value for HubModel::gguf
  std::string revision{};          // empty for main
  std::string projector{};         // becomes HubModel::projector
  bool without_projector = false;  // becomes HubModel::without_projector
  ModelContent content = ModelContent::kWeights;
  bool download = false;  // whether to download the files that the cache lacks
  bool show_progress = false;
};

// Returns the folder or file from which to read a model: `path_or_id` itself if it exists or cannot be an id, otherwise
// the snapshot of that model in the hub's cache. If the cache does not have the snapshot, this function downloads it if
// `download` is true, and otherwise returns the error of find_in_hub_cache(). Returns invalid_argument for a path with
// a revision.
Result<std::string> resolve_model(const ModelRequest& request, const HubSettings& settings);

}  // namespace tessera
