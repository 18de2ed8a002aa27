// The folder that make-checkpoint writes: what it may contain before, whether its disk has room, and what is copied
// into it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::cli {

class CheckpointFolder {
 public:
  // Checks `folder`, which need not exist, and changes nothing. Returns invalid_argument if it is not a folder,
  // contains `config`, or is not empty while `overwrite` is false.
  static Result<CheckpointFolder> check(const std::string& folder, const std::filesystem::path& config, bool overwrite);

  // Returns resource_exhausted if `bytes` exceed the file system's free space plus what begin() frees.
  Status check_space(std::int64_t bytes) const;
  std::int64_t free_bytes() const { return free_bytes_; }

  // Creates the folder. Removes the config.json and the weights of an earlier checkpoint, even of an interrupted write;
  // other files stay. The new config.json must be written last, because no program takes a folder without it for a
  // model.
  Status begin() const;
  // Removes the folder after a failed write, if begin() created it and it is empty.
  void undo() const;

  std::filesystem::path path() const { return folder_; }

 private:
  std::filesystem::path folder_;
  bool exists_ = false;
  std::vector<std::filesystem::path> old_files_;
  std::int64_t free_bytes_ = 0;  // including the size of old_files_
};

// Returns the files of the tokenizer and of its chat template that exist in `folder`, under the names that this program
// and Hugging Face's tools read.
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& folder);

}  // namespace tessera::cli
