// A large file that several threads write. Once it is complete, it replaces the file at another path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "tessera/base/status.h"

namespace tessera {

// A temporary file beside `path`, "<path>.tmp-<process>-<number>". The destructor removes it unless commit() renamed it
// to `path`. Errors name both files and the reason. Their code is kResourceExhausted for a full disk or an exhausted
// quota, otherwise kDataLoss.
class ReplacementFile {
 public:
  // Creates the temporary file. If that fails, the first write() returns the error.
  explicit ReplacementFile(const std::string& path);
  ~ReplacementFile();
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;

  // Writes `data` at byte `offset` of the file. Any thread may call write(). After an error, every call returns the
  // first error.
  Status write(std::int64_t offset, std::span<const std::byte> data);
  // Waits until the content is on disk, and renames the file. Returns the first error of creating, writing, flushing or
  // renaming the file. After an error the file at `path` is unchanged.
  Status commit();

 private:
  Status write_all(std::int64_t offset, std::span<const std::byte> data) const;
  Status failed(const char* what) const;
  // Stores `error` as this file's first error, unless there was one before. Returns the first error.
  Status kept(const Status& error);
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  std::mutex mutex_;
  Status first_error_;  // guarded by mutex_
};

}  // namespace tessera
