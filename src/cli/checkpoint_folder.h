// The folder that make-checkpoint writes: what it may contain before, how much space it has, and what is copied into
// it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::cli {

class CheckpointFolder {
 public:
  // Checks `folder`, which need not exist, and changes nothing. invalid_argument if it is no folder, if `config` lies
  // in it, or if it is not empty and `overwrite` is false.
  static Result<CheckpointFolder> check(const std::string& folder, const std::filesystem::path& config, bool overwrite);

  // Returns resource_exhausted if `bytes` exceed the file system's free space plus what begin() frees.
  Status check_space(std::int64_t bytes) const;
  std::int64_t free_bytes() const { return free_bytes_; }

  // Creates the folder. Removes the config.json and weights of an earlier checkpoint, including those of an interrupted
  // write; other files stay. No program takes a folder without config.json for a model, so the new one is written last.
  Status begin() const;
  // Called after a failed write: removes the folder if begin() created it and it is empty.
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
