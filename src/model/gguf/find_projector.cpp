#include "tessera/model/gguf/find_projector.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "tessera/model/gguf/gguf_architectures.h"
#include "tessera/model/gguf/gguf_projector.h"
#include "tessera/model/weights/model_path.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Returns the folders in which a model's projector may lie: the model's own folder, then the root of the snapshot if
// the model lies below a snapshot in the hub's cache.
std::vector<fs::path> folders_of(const std::string& model_path) {
  const fs::path own = model_folder(model_path);
  for (fs::path root = own; root.has_relative_path(); root = root.parent_path())
    if (root != own && root.parent_path().filename() == "snapshots") return {own, root};
  return {own};
}

// Returns the names of the projectors in a folder, sorted.
std::vector<std::string> projectors_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (is_projector_name(name)) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

bool is_projector_name(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("mmproj") && name.ends_with(".gguf");
}

Result<std::string> find_named_projector(const std::string& model_path, const std::string& name) {
  std::error_code error;
  if (fs::is_regular_file(name, error)) return name;
  const std::vector<fs::path> folders = folders_of(model_path);
  for (const fs::path& folder : folders)
    if (fs::is_regular_file(folder / name, error)) return (folder / name).string();
  const std::string folder = folders.back().string();
  const std::vector<std::string> names = projectors_in(folder);
  return not_found(fmt::format("mmproj: there is no file {}, and {} has {}", name, folder,
                               names.empty() ? "no projector" : fmt::format("{}", fmt::join(names, ", "))));
}

Result<FoundProjector> find_projector_beside(const std::string& model_path) {
  const std::optional<std::string> gguf = TRY(find_gguf(model_path));
  if (!gguf) return FoundProjector{};
  std::string folder;
  std::vector<std::string> names;
  for (const fs::path& searched : folders_of(model_path)) {
    folder = searched.string();
    names = projectors_in(folder);
    if (!names.empty()) break;
  }
  if (names.empty()) return FoundProjector{};
  const GgufModel model = TRY(GgufModel::open(*gguf));
  const GgufArchitecture* architecture = TRY(gguf_architecture(model));
  if (architecture->images.empty()) return FoundProjector{};
  if (names.size() > 1)
    return invalid_argument(fmt::format("{} has {} projectors; accepted: one of them as --mmproj ({}), or --no-mmproj",
                                        folder, names.size(), fmt::join(names, ", ")));
  const std::string path = (fs::path(folder) / names[0]).string();
  const Status fits = projector_images(TRY(GgufModel::open(path)), *architecture).status();
  if (fits.ok()) return FoundProjector{.path = path, .note = {}};
  return FoundProjector{.path = {}, .note = "images are refused: " + fits.message()};
}

}  // namespace tessera
