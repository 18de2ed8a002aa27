#include "tessera/options/model_source.h"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "tessera/base/log.h"
#include "tessera/model/gguf/find_projector.h"
#include "tessera/model/hub/hub_download.h"
#include "tessera/model/hub/hub_gguf.h"
#include "tessera/model/weights/model_path.h"

namespace tessera {
namespace {

// Adds to the error how to get a model that is not in the cache.
Status with_advice(const Status& status, const std::string& model, const std::string& revision) {
  const std::string flag = revision.empty() ? "" : " --revision " + revision;
  return not_found(fmt::format("{}; `tessera pull {}{}` or --download fetches it", status.message(), model, flag));
}

// Returns the GGUF file in `folder` that `which`, a path in the folder or a type, selects (hub_gguf.h).
Result<std::string> gguf_in_folder(const std::string& folder, const std::string& which) {
  std::vector<std::string> names;
  std::error_code error;
  const std::filesystem::path named = std::filesystem::path(folder) / which;
  if (std::filesystem::is_regular_file(named, error)) return named.string();
  error.clear();
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) return not_found(fmt::format("{} cannot be read: {}", folder, error.message()));
  const std::vector<std::string> files = TRY(choose_gguf(names, which).with_context(folder));
  return (std::filesystem::path(folder) / files.front()).string();
}

// Adds the choice of a GGUF file to a folder or an id: "folder/file", or "id:file". `path_or_id` may have the choice
// already, as in "folder:Q4_K_M".
Result<std::string> with_gguf_file(const std::string& path_or_id, const std::string& file) {
  std::error_code error;
  const std::size_t colon = path_or_id.rfind(':');
  if (file.empty() && colon != std::string::npos && !std::filesystem::exists(path_or_id, error) &&
      is_folder(path_or_id.substr(0, colon)))
    return gguf_in_folder(path_or_id.substr(0, colon), path_or_id.substr(colon + 1));
  if (file.empty()) return path_or_id;
  return is_folder(path_or_id) ? gguf_in_folder(path_or_id, file) : path_or_id + ":" + file;
}

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

}  // namespace

Result<std::string> find_model_folder(const std::string& path_or_id, const ModelSource& source, ModelContent content,
                                      const HubSettings& settings, bool show_progress) {
  const std::string named = TRY(with_gguf_file(path_or_id, source.gguf_file));
  Result<std::string> folder = resolve_model({.path_or_id = named,
                                              .revision = source.revision,
                                              .projector = is_file(source.mmproj) ? "" : source.mmproj,
                                              .without_projector = source.no_mmproj || is_file(source.mmproj),
                                              .content = content,
                                              .download = source.download,
                                              .show_progress = show_progress},
                                             settings);
  if (!folder.ok() && folder.status().code() == StatusCode::kNotFound && !source.download)
    return with_advice(folder.status(), named, source.revision);
  return folder;
}

Status find_model_files(EngineOptions& engine, const ModelSource& source, ModelContent content,
                        const HubSettings& settings, bool show_progress) {
  if (source.no_mmproj && !source.mmproj.empty())
    return invalid_argument("--no-mmproj contradicts --mmproj; accepted: one of them");
  const bool is_path_of_file = source.gguf_file.empty() && is_file(engine.model_path);
  engine.model_path = TRY(find_model_folder(engine.model_path, source, content, settings, show_progress));
  if (!source.mmproj.empty()) {
    engine.projector_path = TRY(find_named_projector(engine.model_path, source.mmproj));
  } else if (!source.no_mmproj && !is_path_of_file) {
    const FoundProjector found = TRY(find_projector_beside(engine.model_path));
    engine.projector_path = found.path;
    if (!found.note.empty()) log_warn("engine", "{}", found.note);
  }
  return ok_status();
}

}  // namespace tessera
