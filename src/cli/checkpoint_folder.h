// The folder that make-checkpoint writes: what may lie there before, how much fits, and what is copied into it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::cli {

class CheckpointFolder {
 public:
  // Checks `folder`, which need not exist: invalid_argument where it is no folder, where it is the one that `config`
  // lies in, and where it holds anything, unless `overwrite`. Changes nothing.
  static Result<CheckpointFolder> check(const std::string& folder, const std::filesystem::path& config, bool overwrite);

  // resource_exhausted where `bytes` are more than the file system gives, with what begin() frees.
  Status check_space(std::int64_t bytes) const;
  std::int64_t free_bytes() const { return free_bytes_; }

  // Makes the folder and removes from it the config.json and the weights of an earlier checkpoint, those of an
  // interrupted write among them; other files stay. A folder without config.json is a model to no program, so the new
  // one is written last.
  Status begin() const;
  // After a failed write: removes the folder if begin() made it and it is empty.
  void undo() const;

  std::filesystem::path path() const { return folder_; }

 private:
  std::filesystem::path folder_;
  bool exists_ = false;
  std::vector<std::filesystem::path> old_files_;
  std::int64_t free_bytes_ = 0;  // old_files_' own among them
};

// The files of the tokenizer and of its chat template that exist in `folder`, under the names that this program and
// Hugging Face's tools read.
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& folder);

}  // namespace tessera::cli
