#include "tessera/server/batches/file_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "tessera/base/json_fields.h"
#include "tessera/base/log.h"
#include "tessera/base/write_file.h"
#include "tessera/server/api_job.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int kFullRetryS = 60;

ApiError no_such_file(std::string_view id) {
  return {.http_status = 404,
          .message = fmt::format("there is no file \"{}\"", clip_text(std::string(id))),
          .param = "file_id",
          .code = "file_not_found"};
}

ApiError full(std::string message) {
  return {.http_status = 503,
          .message = std::move(message),
          .type = "server_error",
          .param = {},
          .code = "file_storage_full",
          .retry_after_s = kFullRetryS};
}

// Returns the error for a client whose file could not be written to the disk.
ApiError disk_error(const Status& status) {
  if (status.code() == StatusCode::kResourceExhausted) return full(status.message());
  return api_error(internal_error(status.message()));
}

Result<StoredFile> read_description(const fs::path& path) {
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  const Json json = TRY(read_json_object(path.string()));
  const Fields fields(json, path.filename().string());
  StoredFile file;
  file.id = path.stem().string();
  file.owner = TRY(fields.optional_string("owner")).value_or("");
  file.filename = TRY(fields.optional_string("filename")).value_or("");
  file.purpose = TRY(fields.optional_string("purpose")).value_or("");
  file.created_at = TRY(fields.required_int("created_at", 0, kMost));
  file.expires_at = TRY(fields.required_int("expires_at", 0, kMost));
  return file;
}

}  // namespace

Json StoredFile::to_json() const {
  return Json::object({{"id", id},
                       {"object", "file"},
                       {"bytes", bytes},
                       {"created_at", created_at},
                       {"expires_at", expires_at},
                       {"filename", filename},
                       {"purpose", purpose},
                       {"status", "processed"}});
}

Result<std::unique_ptr<FileStore>> FileStore::open(fs::path folder, Limits limits, Clock clock) {
  if (!clock) clock = unix_time;
  std::unique_ptr<FileStore> store(new FileStore(std::move(folder), limits, std::move(clock)));
  TRY(store->load());
  return store;
}

Status FileStore::load() {
  std::set<std::string> contents;
  std::vector<fs::path> descriptions;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() == ".json") {
      descriptions.push_back(path);
    } else {
      contents.insert(path.filename().string());
    }
  }
  if (error) return not_found(fmt::format("cannot list {}: {}", folder_.string(), error.message()));
  for (const fs::path& path : descriptions) {
    Result<StoredFile> file = read_description(path);
    const bool has_content = contents.erase(path.stem().string()) > 0;
    if (file.ok() && has_content) {
      file->bytes = static_cast<std::int64_t>(fs::file_size(path_of(file->id), error));
      if (error) return not_found(fmt::format("cannot read {}: {}", path_of(file->id).string(), error.message()));
      used_ += file->bytes;
      files_.emplace(file->id, *file);
      continue;
    }
    log_warn("server", "the file {} is left out: {}", path.stem().string(),
             has_content ? file.status().message() : "its content is gone");
  }
  // Removes content that has no description. An interrupted upload left it behind.
  for (const std::string& name : contents) {
    if (name.starts_with("file-")) fs::remove(folder_ / name, error);
  }
  return ok_status();
}

Status FileStore::give_unnamed(const std::string& owner) {
  if (owner.empty()) return ok_status();
  const std::lock_guard lock(mutex_);
  for (auto& [id, file] : files_) {
    if (!file.owner.empty()) continue;
    file.owner = owner;
    TRY(write_description(file));
  }
  return ok_status();
}

Status FileStore::write_description(const StoredFile& file) const {
  Json json = file.to_json();
  json.set("owner", file.owner);
  return replace_file(folder_ / (file.id + ".json"), json.dump());
}

void FileStore::remove(std::string id) {  // NOLINT(performance-unnecessary-value-param): see the declaration
  const auto found = files_.find(id);
  used_ -= found->second.bytes;
  files_.erase(found);
  // Removes the description first, because the next start removes content without a description.
  std::error_code ignored;
  fs::remove(folder_ / (id + ".json"), ignored);
  fs::remove(path_of(id), ignored);
}

void FileStore::erase_old() {
  const std::int64_t now = clock_();
  std::vector<std::string> old;
  for (const auto& [id, file] : files_) {
    if (file.expires_at <= now) old.push_back(id);
  }
  for (const std::string& id : old) remove(id);
}

ApiStatus FileStore::make_room(std::int64_t bytes, std::size_t files) {
  if (bytes > limits_.bytes)
    return ApiError{
        .http_status = 413,
        .message = fmt::format("the file has {} bytes; all files together may have {}", bytes, limits_.bytes),
        .param = "file",
        .code = "file_too_large"};
  if (used_ + bytes > limits_.bytes || files_.size() + files > limits_.number) erase_old();
  if (files_.size() + files > limits_.number)
    return full(fmt::format("there are {} files, which is the most; delete some", files_.size()));
  if (used_ + bytes > limits_.bytes)
    return full(fmt::format("files have {} bytes, and {} more would exceed the limit of {}; delete some", used_, bytes,
                            limits_.bytes));
  used_ += bytes;
  return api_ok();
}

ApiStatus FileStore::take(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  return make_room(bytes, 0);
}

void FileStore::give_back(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
}

std::int64_t FileStore::used() {
  const std::lock_guard lock(mutex_);
  return used_;
}

ApiResult<StoredFile> FileStore::put(StoredFile file, std::string_view content) {
  file.id = make_id("file-");
  file.bytes = std::ssize(content);
  {
    const std::lock_guard lock(mutex_);
    TRY(make_room(file.bytes, 1));
  }
  if (const Status written = replace_file(path_of(file.id), content); !written.ok()) {
    give_back(file.bytes);
    return disk_error(written);
  }
  return describe(std::move(file));
}

ApiResult<StoredFile> FileStore::adopt(StoredFile file, const fs::path& path) {
  file.id = make_id("file-");
  if (const Status moved = rename_file(path, path_of(file.id)); !moved.ok()) {
    give_back(file.bytes);
    return disk_error(moved);
  }
  return describe(std::move(file));
}

ApiResult<StoredFile> FileStore::describe(StoredFile file) {
  file.created_at = clock_();
  if (const Status written = write_description(file); !written.ok()) {
    std::error_code ignored;
    fs::remove(path_of(file.id), ignored);
    give_back(file.bytes);
    return disk_error(written);
  }
  const std::lock_guard lock(mutex_);
  files_.emplace(file.id, file);
  return file;
}

ApiResult<StoredFile> FileStore::find(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(id);
  if (found == files_.end() || found->second.owner != owner) return no_such_file(id);
  if (found->second.expires_at > clock_()) return found->second;
  remove(found->first);
  return no_such_file(id);
}

ApiStatus FileStore::erase(std::string_view id, std::string_view owner) {
  TRY(find(id, owner));
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(id);
  if (found == files_.end()) return no_such_file(id);
  remove(found->first);
  return api_ok();
}

std::vector<StoredFile> FileStore::list(std::string_view owner) {
  std::vector<StoredFile> found;
  {
    const std::lock_guard lock(mutex_);
    erase_old();
    for (const auto& [id, file] : files_) {
      if (file.owner == owner) found.push_back(file);
    }
  }
  std::ranges::sort(found, [](const StoredFile& a, const StoredFile& b) {
    return std::pair(a.created_at, a.id) > std::pair(b.created_at, b.id);
  });
  return found;
}

}  // namespace tessera
