// Maps a file read-only into memory.
//
//   std::shared_ptr<const MappedFile> file = TRY(MappedFile::open("model.gguf"));
//   … file->bytes() …
//   TRY(file->check_whole());
//
// If the file becomes shorter, the lost pages of the mapping cannot be read, and the system sends the signal SIGBUS.
// This class turns that into an error: the lost bytes read as zeros, and check_whole() reports the loss afterwards. For
// this purpose the first open() of the process installs a handler of SIGBUS. If a signal does not come from a mapping
// of this class, the handler does what the process would have done without this class.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "tessera/base/status.h"

namespace tessera {

struct MappedRange;

// All functions are thread-safe.
class MappedFile {
 public:
  // Maps the file. Returns kNotFound if it does not exist, and kDataLoss if it is not a regular file or cannot be
  // mapped. Pages are read when they are first touched.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  // Returns the file's content, with the size that the file had at open(). The bytes are valid as long as this object
  // exists.
  std::span<const std::byte> bytes() const { return bytes_; }
  // Returns kDataLoss if the file no longer had bytes that were read since open(). These bytes were read as zeros. Call
  // it after reading and before using the result.
  Status check_whole() const;

 private:
  explicit MappedFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
  std::span<const std::byte> bytes_;
  MappedRange* range_ = nullptr;  // the process owns it; null for an empty file
};

}  // namespace tessera
