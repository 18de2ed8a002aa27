// Where Tessera keeps from run to run what it found out.
#pragma once

#include <functional>
#include <string>

namespace tessera {

// `get(name)` is the value of an environment variable, null where it is not set; an empty one counts as not set.
// TESSERA_CACHE_DIR, else SGLANG_CACHE_DIR, else tessera in XDG_CACHE_HOME, else in .cache of HOME; "" where none is
// set, which keeps nothing.
std::string cache_dir_from(const std::function<const char*(const char*)>& get);

}  // namespace tessera
