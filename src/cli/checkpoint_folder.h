// The folder that make-checkpoint writes. Before the write, this class checks the folder's contents and the free space
// of its disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::cli {

class CheckpointFolder {
 public:
  // Checks `folder`, which need not exist, and changes nothing. Returns kInvalidArgument if `folder` exists and is not
  // a folder, if it is the folder of the file `config`, or if it is not empty and `overwrite` is false.
  static Result<CheckpointFolder> check(const std::string& folder, const std::filesystem::path& config, bool overwrite);

  // Returns kResourceExhausted if `bytes` exceeds the file system's free space plus the space that begin() frees.
  Status check_space(std::int64_t bytes) const;
  std::int64_t free_bytes() const { return free_bytes_; }

  // Creates the folder. Removes config.json and the weights of an earlier checkpoint, even if the write of that
  // checkpoint was interrupted. Other files stay. The new config.json must be written last, because no program accepts
  // a folder without config.json as a model.
  Status begin() const;
  // After a failed write, removes the folder if begin() created it and it is empty.
  void undo() const;

  std::filesystem::path path() const { return folder_; }

 private:
  std::filesystem::path folder_;
  bool exists_ = false;
  std::vector<std::filesystem::path> old_files_;
  std::int64_t free_bytes_ = 0;  // including the size of old_files_
};

// Returns the files in `folder` that hold the tokenizer or its chat template. Looks for the names that this program and
// Hugging Face's tools read.
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& folder);

}  // namespace tessera::cli
