// Files of the hub's cache: written beside their place and renamed, so that a reader never sees half of one, and locked
// as the hub's own tools lock them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

#include "tessera/base/status.h"

namespace tessera {

// A descriptor, closed at the end.
class OpenFile {
 public:
  // For reading and writing; made if it is not there. Errors name path and reason.
  static Result<OpenFile> open(const std::filesystem::path& path);
  OpenFile(OpenFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile();

  Result<std::int64_t> size() const;
  // From where the last read or write ended. Fewer bytes than asked for: the end.
  Result<std::int64_t> read(char* to, std::size_t size);
  Status write(std::string_view bytes);
  // Cut off from here on, and go on here.
  Status truncate(std::int64_t size);
  // On disk when it returns.
  Status sync();
  // Waits until no other process, and no other OpenFile, holds the lock. `on_wait` is called once if that takes
  // waiting.
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
// Replaces what is at `path`; after an error it is what it was, and nothing is left beside it.
Status replace_file(const std::filesystem::path& path, std::string_view content);
Status write_link(const std::filesystem::path& path, const std::filesystem::path& target);

}  // namespace tessera
