// The folder in which the server keeps uploaded files and batches. Its entries are:
//
//   lock             held by the one server that uses the folder
//   files/ID         the content of a file; files/ID.json describes it
//   batches/ID.json  a batch; ID.output and ID.errors are its answers while it runs
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/base/status.h"

namespace tessera {

// Owns the lock. Threads: any thread may call the const functions.
class FileFolder {
 public:
  // Creates missing folders and takes the lock. Errors: the folder cannot be written, or another server uses it. The
  // message names the path.
  static Result<FileFolder> open(const std::filesystem::path& path);
  FileFolder(FileFolder&& other) noexcept : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}
  FileFolder& operator=(FileFolder&&) = delete;
  ~FileFolder();

  std::filesystem::path files() const { return path_ / "files"; }
  std::filesystem::path batches() const { return path_ / "batches"; }

 private:
  FileFolder(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::filesystem::path path_;
  int lock_;  // file descriptor; -1 after the object was moved from
};

}  // namespace tessera
