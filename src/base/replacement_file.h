// A large file that is written by several threads and replaces another one when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tessera/base/status.h"

namespace tessera {

// A temporary file beside `path`, "<path>.tmp-<process>-<number>". The destructor removes it unless commit() renamed it
// to `path`. Errors name both files and the reason: resource_exhausted for a full disk, else data_loss.
class ReplacementFile {
 public:
  // Creates the temporary file. An error is returned by the first write().
  explicit ReplacementFile(const std::string& path);
  ~ReplacementFile();
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;

  // Writes at byte `offset` of the file. Any thread may call it.
  Status write(std::int64_t offset, std::span<const std::byte> data) const;
  // Makes sure that the content is on disk, and renames the file. Returns the first error of all.
  Status commit();

 private:
  Status failed(const char* what) const;
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  Status status_;
};

}  // namespace tessera
