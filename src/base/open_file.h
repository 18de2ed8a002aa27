// A file that is read, written and locked through one descriptor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

#include "tessera/base/status.h"

namespace tessera {

// Owns a file descriptor and closes it. One thread at a time may use it.
class OpenFile {
 public:
  // Opens for reading and writing, and creates the file if it does not exist. Errors name path and reason.
  static Result<OpenFile> open(const std::filesystem::path& path);
  OpenFile(OpenFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile();

  // Returns the size in bytes.
  Result<std::int64_t> size() const;
  // Reads from the current position. Returns the number of bytes read. If it is less than `size`, the end of the file
  // has been reached.
  Result<std::int64_t> read(char* to, std::size_t size);
  // Writes all of `bytes` at the current position.
  Status write(std::string_view bytes);
  // Truncates the file to `size` bytes and moves the position there.
  Status truncate(std::int64_t size);
  // Waits until the content is on disk.
  Status sync();
  // Locks the file by flock(2). Only one OpenFile, in any process, can hold the lock. If another one holds it, calls
  // `on_wait` once and waits. Closing the file releases the lock.
  Status lock(void (*on_wait)(const std::filesystem::path&));

 private:
  OpenFile(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  std::filesystem::path path_;
};

// Returns the error "cannot <doing> <path>: <reason>" for errno. The code is kResourceExhausted for a full disk, an
// exhausted quota or a file that is too large, otherwise kNotFound.
Status file_error(std::string_view doing, const std::filesystem::path& path);

}  // namespace tessera
