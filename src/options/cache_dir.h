// Finds the folder in which Tessera keeps measurements between runs.
#pragma once

#include <functional>
#include <string>

namespace tessera {

// Returns TESSERA_CACHE_DIR, else SGLANG_CACHE_DIR, else "tessera" in XDG_CACHE_HOME, else "tessera" in HOME's .cache.
// Returns "" if none of these is set; measurements are then not kept. `get(name)` returns an environment variable's
// value, or null if it is not set. An empty value counts as not set.
std::string cache_dir_from(const std::function<const char*(const char*)>& get);

}  // namespace tessera
