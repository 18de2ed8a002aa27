#include "tessera/options/model_source.h"

#include <fmt/format.h>

#include "tessera/model/hub/hub_download.h"

namespace tessera {
namespace {

// Adds advice to the error on how to get a model that is not in the cache.
Status with_advice(const Status& status, const std::string& model, const std::string& revision) {
  const std::string flag = revision.empty() ? "" : " --revision " + revision;
  return not_found(fmt::format("{}; `tessera pull {}{}` or --download fetches it", status.message(), model, flag));
}

}  // namespace

Result<std::string> find_model_folder(const std::string& path_or_id, const ModelSource& source, ModelContent content,
                                      const HubSettings& settings, bool show_progress) {
  Result<std::string> folder = resolve_model({.path_or_id = path_or_id,
                                              .revision = source.revision,
                                              .content = content,
                                              .download = source.download,
                                              .show_progress = show_progress},
                                             settings);
  if (!folder.ok() && folder.status().code() == StatusCode::kNotFound && !source.download)
    return with_advice(folder.status(), path_or_id, source.revision);
  return folder;
}

}  // namespace tessera
