#include "tessera/model/hub/hub_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/model/gguf/find_projector.h"
#include "tessera/model/hub/hub_gguf.h"
#include "tessera/model/weights/weight_map.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxIdLength = 96;  // the hub's own limit
constexpr std::size_t kMaxNamesShown = 10;

bool is_id_part(std::string_view part) {
  const auto accepted = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  const auto at_the_edge = [](char c) { return c == '-' || c == '.'; };
  return !part.empty() && std::all_of(part.begin(), part.end(), accepted) && !at_the_edge(part.front()) &&
         !at_the_edge(part.back()) && part.find("--") == std::string_view::npos &&
         part.find("..") == std::string_view::npos;
}

// Returns whether `text` is a well-formed revision. The name of a branch may contain slashes ("refs/pr/1").
bool is_revision(std::string_view text) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('/', begin), text.size());
    if (!is_plain_name(text.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

// If `files` is true, returns the relative paths of all regular files below `folder`, at any depth. Otherwise returns
// the entries directly in `folder` that are not regular files.
std::vector<std::string> names_below(const fs::path& folder, bool files) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code unreadable;
    if (it->is_regular_file(unreadable) == files) names.push_back(it->path().lexically_relative(folder));
    if (!files) it.disable_recursion_pending();
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string shown(std::vector<std::string> names) {
  const std::size_t count = names.size();
  if (count > kMaxNamesShown) names.resize(kMaxNamesShown);
  return fmt::format("{}{}", fmt::join(names, ", "), count > kMaxNamesShown ? fmt::format(" … ({})", count) : "");
}

// Returns the commit to which `revision` refers, if the cache has it.
Result<std::optional<std::string>> find_commit(const HubFolder& folder, const std::string& revision) {
  std::error_code error;
  const fs::path ref = folder.ref(revision);
  if (fs::is_regular_file(ref, error)) {
    std::string commit = TRY(read_text_file(ref));
    while (!commit.empty() && commit.back() == '\n') commit.pop_back();
    if (!is_plain_name(commit)) return data_loss(fmt::format("{} holds no commit", ref.string()));
    return std::optional(commit);
  }
  if (is_plain_name(revision) && fs::is_directory(folder.snapshots() / revision, error)) return std::optional(revision);
  return std::optional<std::string>();
}

// Returns the files that `content` requires and that the snapshot does not have. A link to a blob that does not exist
// counts as a missing file.
Result<std::vector<std::string>> missing_files(const fs::path& snapshot, ModelContent content) {
  std::set<std::string> missing;
  std::error_code error;
  for (fs::directory_iterator it(snapshot, error), end; !error && it != end; it.increment(error)) {
    std::error_code dangling;
    const std::string name = it->path().filename();
    const bool weights = name.ends_with(".safetensors");
    if (!fs::exists(it->path(), dangling) && (!weights || content == ModelContent::kWeights)) missing.insert(name);
  }
  const auto has = [&](std::string_view name) { return fs::exists(snapshot / name, error); };
  if (!has("config.json")) missing.insert("config.json");
  if (content == ModelContent::kWeights && !has(kWeightFile)) {
    if (has(kWeightIndex)) {
      const std::map<std::string, std::string> weight_map = TRY(read_weight_map(snapshot / kWeightIndex));
      for (const auto& [tensor, shard] : weight_map) {
        if (!has(shard)) missing.insert(shard);
      }
    } else {
      const std::vector<std::string> files = names_below(snapshot, /*files=*/true);
      if (std::none_of(files.begin(), files.end(), shard_number)) missing.insert(std::string(kWeightFile));
    }
  }
  return std::vector(missing.begin(), missing.end());
}

// Returns the GGUF files of models in a snapshot that has no config.json; an empty list for other snapshots.
std::vector<std::string> ggufs_alone(const fs::path& snapshot) {
  std::error_code error;
  if (fs::exists(snapshot / "config.json", error)) return {};
  std::vector<std::string> names = names_below(snapshot, /*files=*/true);
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".gguf") || is_projector_name(name); });
  return names;
}

// Returns the path of the model's first GGUF file in the snapshot. A link to a blob that does not exist counts as a
// missing file. Missing members of a split set are reported later, when the model is opened.
Result<std::string> find_gguf_file(const fs::path& snapshot, const HubModel& model) {
  const std::vector<std::string> names = names_below(snapshot, /*files=*/true);
  const Result<std::vector<std::string>> files = choose_gguf(names, model.gguf);
  std::error_code error;
  if (files.ok() && !model.projector.empty() && !fs::exists(snapshot / model.projector, error))
    return not_found(
        fmt::format("the hub's cache of {}, {}, has no projector {}", model.id, snapshot.string(), model.projector));
  if (files.ok()) return (snapshot / files->front()).string();
  return files.status().with_context(fmt::format("the hub's cache of {}, {}", model.id, snapshot.string()));
}

}  // namespace

bool is_plain_name(std::string_view text) {
  const auto accepted = [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != '/' && c != '\\' && c != '\x7f';
  };
  return !text.empty() && text.size() <= 255 && text != "." && text != ".." &&
         std::all_of(text.begin(), text.end(), accepted);
}

bool is_hub_id(std::string_view text) {
  if (text.size() > kMaxIdLength) return false;
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return is_id_part(text);
  return is_id_part(text.substr(0, slash)) && is_id_part(text.substr(slash + 1));
}

Result<HubFolder> HubFolder::of(const HubSettings& settings, const HubModel& model) {
  if (!is_hub_id(model.id)) {
    return invalid_argument(
        fmt::format("\"{}\" is no id of the hub; accepted is org/name, of letters, digits, -, _ "
                    "and .",
                    model.id.substr(0, kMaxIdLength)));
  }
  if (!is_revision(model.revision)) {
    return invalid_argument(
        fmt::format("revision: \"{}\" is not accepted; a branch, a tag or a commit is", model.revision.substr(0, 80)));
  }
  if (settings.cache.empty())
    return invalid_argument(
        "the hub's cache has no folder: neither HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME nor HOME is set");
  std::string name = "models--" + model.id;
  if (const std::size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  const fs::path cache = settings.cache;
  return HubFolder(cache / name, cache / ".locks" / name);
}

Result<std::string> find_in_hub_cache(const HubSettings& settings, const HubModel& model, ModelContent content) {
  const HubFolder folder = TRY(HubFolder::of(settings, model));
  std::error_code error;
  if (!fs::is_directory(folder.root(), error)) {
    return not_found(fmt::format("the hub's cache has no {}: there is no {}", model.id, folder.root().string()));
  }
  const std::optional<std::string> commit = TRY(find_commit(folder, model.revision));
  if (!commit) {
    std::vector<std::string> known = names_below(folder.root() / "refs", /*files=*/true);
    const std::vector<std::string> commits = names_below(folder.snapshots(), /*files=*/false);
    known.insert(known.end(), commits.begin(), commits.end());
    return not_found(fmt::format("the hub's cache has no revision \"{}\" of {}: {} holds {}", model.revision, model.id,
                                 folder.root().string(), known.empty() ? "none" : shown(known)));
  }
  const fs::path snapshot = folder.snapshots() / *commit;
  if (!model.gguf.empty()) return find_gguf_file(snapshot, model);
  const std::vector<std::string> missing = TRY(missing_files(snapshot, content));
  if (!missing.empty()) {
    if (const std::vector<std::string> models = ggufs_alone(snapshot); !models.empty())
      return failed_precondition(
          fmt::format("the hub's cache of {}, {}, has GGUF files alone: {}; accepted: {}:TYPE, "
                      "as in {}:Q4_K_M",
                      model.id, snapshot.string(), shown(models), model.id, model.id));
    return not_found(
        fmt::format("the hub's cache has only a part of {}: {} lacks {}", model.id, snapshot.string(), shown(missing)));
  }
  return snapshot.string();
}

}  // namespace tessera
