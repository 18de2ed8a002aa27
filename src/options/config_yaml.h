// YAML, behind the library that parses it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/options/config_file.h"

namespace tessera {

// The entries of the map that `text` is; of an empty text none. Maps and lists below it come as they are, for the
// caller to judge. kInvalidArgument with `path` and line for what is no YAML, no map, has an alias, a tag or several
// documents.
Result<std::vector<ConfigEntry>> read_yaml(const std::string& text, const std::string& path);

}  // namespace tessera
