// Files of the hub's cache. A file is written under a temporary name and renamed, so that a reader never sees a partial
// one. Locks are those of the hub's own tools.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

#include "tessera/base/status.h"

namespace tessera {

// A file descriptor, closed by the destructor.
class OpenFile {
 public:
  // Opens for reading and writing, and creates the file if it does not exist. Errors name path and reason.
  static Result<OpenFile> open(const std::filesystem::path& path);
  OpenFile(OpenFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile();

  Result<std::int64_t> size() const;
  // Continues after the last read or write. Fewer bytes than asked for mean the end of the file.
  Result<std::int64_t> read(char* to, std::size_t size);
  Status write(std::string_view bytes);
  // Truncates the file to this size and continues there.
  Status truncate(std::int64_t size);
  // Flushes the file to disk (fsync).
  Status sync();
  // Waits until no other process and no other OpenFile holds the lock. Calls `on_wait` once if it must wait.
  Status lock(void (*on_wait)(const std::filesystem::path&));

 private:
  OpenFile(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  std::filesystem::path path_;
};

// "cannot <do what> <path>: <reason>", by errno: resource_exhausted for a full disk, else not_found.
Status file_error(std::string_view doing, const std::filesystem::path& path);

Status make_folder(const std::filesystem::path& path);
Status rename_file(const std::filesystem::path& from, const std::filesystem::path& to);
// Replaces the file at `path`. After an error the old file is unchanged and no temporary file is left.
Status replace_file(const std::filesystem::path& path, std::string_view content);
Status write_link(const std::filesystem::path& path, const std::filesystem::path& target);

}  // namespace tessera
