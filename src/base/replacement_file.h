// A large file that several threads write. Once complete, it replaces another file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tessera/base/status.h"

namespace tessera {

// A temporary file beside `path`, "<path>.tmp-<process>-<number>". The destructor removes it unless commit() renamed it
// to `path`. Errors name both files and the reason: kResourceExhausted for a full disk, otherwise kDataLoss.
class ReplacementFile {
 public:
  // Creates the temporary file. If that fails, the first write() returns the error.
  explicit ReplacementFile(const std::string& path);
  ~ReplacementFile();
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;

  // Writes at byte `offset` of the file. Any thread may call it.
  Status write(std::int64_t offset, std::span<const std::byte> data) const;
  // Waits until the content is on disk, and renames the file. Returns an error if the file could not be created,
  // flushed or renamed.
  Status commit();

 private:
  Status failed(const char* what) const;
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  Status status_;
};

}  // namespace tessera
