// Recognises Git LFS pointer files. A clone without LFS has such a file in place of each large file.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// Returns whether a file that begins with `bytes` is a Git LFS pointer file.
inline bool is_lfs_pointer(std::string_view bytes) {
  return bytes.starts_with("version https://git-lfs.github.com/spec/");
}

inline Status lfs_pointer_error(std::string_view path) {
  return data_loss(fmt::format(
      "{} is a pointer of Git LFS, and the file itself was not fetched: run `git lfs pull` in the folder", path));
}

}  // namespace tessera
