// Finds the folder in which Tessera keeps measurements between runs.
#pragma once

#include <functional>
#include <string>

namespace tessera {

// Returns the first of these folders whose variable is set: TESSERA_CACHE_DIR, SGLANG_CACHE_DIR,
// XDG_CACHE_HOME/tessera, HOME/.cache/tessera. Returns "" if none of these variables is set. Measurements are then not
// kept. `get(name)` returns an environment variable's value, or null if it is not set. An empty value counts as not
// set.
std::string cache_dir_from(const std::function<const char*(const char*)>& get);

}  // namespace tessera
