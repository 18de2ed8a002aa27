// Reads YAML. No other file includes the YAML library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/options/config_file.h"

namespace tessera {

// Returns the entries of the map in `text`; none for an empty text. Nested maps and lists are returned as they are, for
// the caller to check. Returns kInvalidArgument, with `path` and line, for text that is no YAML or no map, or has an
// alias, a tag or several documents.
Result<std::vector<ConfigEntry>> read_yaml(const std::string& text, const std::string& path);

}  // namespace tessera
