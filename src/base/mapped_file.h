// A file mapped read-only into memory.
//
//   std::shared_ptr<const MappedFile> file = TRY(MappedFile::open("model.gguf"));
//   … file->bytes() …
//   TRY(file->check_whole());
//
// A page of a mapping whose file has become shorter cannot be read, and the system reports this by the signal SIGBUS.
// Here it is an error: the bytes that are gone read as zeros, and check_whole() reports it afterwards. For this, the
// first open() of the process installs a handler of SIGBUS, which passes on all signals that do not come from a mapping
// of this class.
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
  // not_found if the file does not exist; data_loss if it is no regular file or cannot be mapped. Pages are read when
  // they are first touched.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  // Returns the content that the file had when it was opened; valid as long as this object.
  std::span<const std::byte> bytes() const { return bytes_; }
  // Returns data_loss if bytes that were read since open() were no longer in the file, so that zeros were read in their
  // place. Call it after reading, before the result is used.
  Status check_whole() const;

 private:
  explicit MappedFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
  std::span<const std::byte> bytes_;
  MappedRange* range_ = nullptr;  // owned by the process; null for an empty file
};

}  // namespace tessera
