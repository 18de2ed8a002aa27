#include "tessera/compile/profile_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/base/log.h"
#include "tessera/base/write_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 1;
constexpr std::int64_t kMaxEntryBytes = std::int64_t{4} << 20;
constexpr std::string_view kUnfinished = "unfinished";

fs::path profiles(const std::string& root) { return fs::path(root) / "profiles"; }
fs::path folder_of(const std::string& root) { return profiles(root) / fmt::format("v{}", kVersion); }

fs::path path_of(const std::string& root, std::string_view kind, const Hash128& key) {
  return folder_of(root) / fmt::format("{}-{}.json", kind, key.hex());
}

// Returns a checksum over every field of an entry, so that any changed bit is found.
std::string checksum(std::string_view kind, const std::string& key, const std::string& value) {
  Hasher hasher;
  hasher.add(kind);
  hasher.add(key);
  hasher.add(value);
  return hasher.finish().hex();
}

Json entry_json(std::string_view kind, const std::string& key, const Json& value) {
  Json entry = Json::object();
  entry.set("tessera_profile", kVersion).set("kind", kind).set("key", key);
  entry.set("checksum", checksum(kind, key, value.dump())).set("value", value);
  return entry;
}

// Returns the value of the entry at `path`, or kNotFound if there is no entry.
Result<Json> read_entry(const fs::path& path, std::string_view kind, const std::string& key) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return not_found("no entry");
  if (!fs::is_regular_file(status)) return data_loss(fmt::format("{} is not a regular file", path.string()));
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory)
    return not_found("the entry is gone");  // if another process cleared the cache
  if (error) return data_loss(fmt::format("cannot read the size of {}: {}", path.string(), error.message()));
  if (bytes > static_cast<std::uintmax_t>(kMaxEntryBytes))
    return data_loss(fmt::format("{} has {} bytes; an entry has at most {}", path.string(), bytes, kMaxEntryBytes));
  const Json entry = TRY(Json::read_file(path.string()));
  const Json* value = entry.find("value");
  if (value == nullptr || entry_json(kind, key, *value) != entry)
    return data_loss(fmt::format("{} is not an entry of this version and key", path.string()));
  return *value;
}

struct File {
  fs::path path;
  std::string kind;
  std::int64_t bytes = 0;
  fs::file_time_type written;
};

bool all_of(std::string_view text, std::string_view letters) {
  return !text.empty() && text.find_first_not_of(letters) == std::string_view::npos;
}

// Returns the kind of the entry with this file name. The kind is kUnfinished for an unfinished entry, and "" if the
// file is no entry.
std::string kind_of(const std::string& name) {
  const std::size_t dash = name.find('-');
  if (dash == std::string::npos) return "";
  std::string kind = name.substr(0, dash);
  const std::string_view rest = std::string_view(name).substr(dash + 1);
  if (!all_of(kind, "abcdefghijklmnopqrstuvwxyz_") || rest.size() < 37 ||
      !all_of(rest.substr(0, 32), "0123456789abcdef") || rest.substr(32, 5) != ".json")
    return "";
  if (rest.size() == 37) return kind;
  return rest.substr(37).starts_with('.') && rest.ends_with(".new") ? std::string(kUnfinished) : "";
}

// Returns the entries in `folder`. Other processes may add and remove files during the call.
Result<std::vector<File>> files_in(const fs::path& folder) {
  std::vector<File> files;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  if (error == std::errc::no_such_file_or_directory) return files;
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string kind = kind_of(it->path().filename().string());
    std::error_code gone;
    if (kind.empty() || !it->is_regular_file(gone)) continue;
    File file{.path = it->path(), .kind = kind, .bytes = 0, .written = it->last_write_time(gone)};
    const std::uintmax_t bytes = gone ? 0 : it->file_size(gone);
    if (gone) continue;
    file.bytes = static_cast<std::int64_t>(bytes);
    files.push_back(std::move(file));
  }
  if (error) return not_found(fmt::format("cannot read the folder {}: {}", folder.string(), error.message()));
  return files;
}

// Returns the entries of all versions.
Result<std::vector<File>> all_files(const std::string& root) {
  std::vector<File> all;
  std::error_code error;
  fs::directory_iterator it(profiles(root), error);
  if (error == std::errc::no_such_file_or_directory) return all;
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with('v') || !all_of(name.substr(1), "0123456789")) continue;
    const std::vector<File> files = TRY(files_in(it->path()));
    all.insert(all.end(), files.begin(), files.end());
  }
  if (error) return not_found(fmt::format("cannot read the folder {}: {}", profiles(root).string(), error.message()));
  return all;
}

std::map<std::string, ProfileCacheKind> by_kind(const std::vector<File>& files) {
  std::map<std::string, ProfileCacheKind> kinds;
  for (const File& file : files) {
    ++kinds[file.kind].entries;
    kinds[file.kind].bytes += file.bytes;
  }
  return kinds;
}

// Removes the oldest entries until the remaining ones take at most `max_bytes`. Also removes unfinished entries that
// are older than an hour.
void evict(const fs::path& folder, std::int64_t max_bytes) {
  Result<std::vector<File>> files = files_in(folder);
  if (!files.ok()) return;
  std::int64_t bytes = 0;
  for (const File& file : *files) bytes += file.bytes;
  std::sort(files->begin(), files->end(),
            [](const File& a, const File& b) { return std::tie(a.written, a.path) < std::tie(b.written, b.path); });
  const fs::file_time_type an_hour_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (const File& file : *files) {
    const bool unfinished = file.kind == kUnfinished;
    if (unfinished ? file.written > an_hour_ago : bytes <= max_bytes) continue;
    std::error_code gone;
    fs::remove(file.path, gone);
    bytes -= file.bytes;
  }
}

}  // namespace

std::optional<Json> ProfileCache::load(std::string_view kind, const Hash128& key) {
  std::optional<Json> value = look(kind, key);
  if (value) ++hits_;
  return value;
}

std::optional<Json> ProfileCache::look(std::string_view kind, const Hash128& key) {
  if (options_.root.empty()) return std::nullopt;
  Result<Json> value = read_entry(path_of(options_.root, kind, key), kind, key.hex());
  if (value.ok()) {
    log_debug("cache", "{} of {} found", kind, key.hex());
    return *std::move(value);
  }
  if (value.status().code() != StatusCode::kNotFound)
    warn_once(warned_of_entry_, value.status().with_context("an entry of the profile cache is ignored"));
  log_debug("cache", "{} of {} not found", kind, key.hex());
  return std::nullopt;
}

void ProfileCache::save(std::string_view kind, const Hash128& key, const Json& value) {
  if (options_.root.empty()) return;
  Status status = write(kind, key, value);
  // If another process cleared the cache after write() had made the folder, the second attempt makes the folder again.
  if (status.code() == StatusCode::kNotFound) status = write(kind, key, value);
  if (!status.ok())
    return warn_once(
        warned_of_folder_,
        status.with_context("measurements cannot be saved in the profile cache, so the next start repeats them"));
  log_debug("cache", "{} of {} kept", kind, key.hex());
  evict(folder_of(options_.root), options_.max_bytes);
}

void ProfileCache::keep(std::string_view kind, const Hash128& key, const Json& value) {
  made_here_[fmt::format("{}-{}", kind, key.hex())] = value;
  save(kind, key, value);
}

const Json* ProfileCache::made_here(std::string_view kind, const Hash128& key) const {
  const auto made = made_here_.find(fmt::format("{}-{}", kind, key.hex()));
  return made == made_here_.end() ? nullptr : &made->second;
}

Status ProfileCache::write(std::string_view kind, const Hash128& key, const Json& value) const {
  const std::string text = entry_json(kind, key.hex(), value).dump() + "\n";
  if (std::ssize(text) > std::min(kMaxEntryBytes, options_.max_bytes))
    return resource_exhausted(fmt::format("an entry of kind {} has {} bytes", kind, text.size()));
  TRY(make_folder(folder_of(options_.root)));
  return replace_file(path_of(options_.root, kind, key), text);
}

void ProfileCache::warn_once(bool& warned, const Status& status) const {
  if (std::exchange(warned, true)) return;
  log_warn("cache", "{}", status.message());
}

Result<std::map<std::string, ProfileCacheKind>> list_profiles(const std::string& root) {
  const std::vector<File> files = TRY(all_files(root));
  return by_kind(files);
}

Result<std::map<std::string, ProfileCacheKind>> clear_profiles(const std::string& root) {
  const std::vector<File> files = TRY(all_files(root));
  std::vector<File> removed;
  for (const File& file : files) {
    std::error_code error;
    if (fs::remove(file.path, error)) removed.push_back(file);
    if (error) return not_found(fmt::format("cannot remove {}: {}", file.path.string(), error.message()));
  }
  // fs::remove() removes only empty folders. The next process that writes an entry makes the entry's folder again.
  std::error_code error;
  for (const File& file : removed) fs::remove(file.path.parent_path(), error);
  fs::remove(profiles(root), error);
  return by_kind(removed);
}

}  // namespace tessera
