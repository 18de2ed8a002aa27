// Reads configuration files in YAML. Only config_yaml.cpp includes the YAML library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/options/config_file.h"

namespace tessera {

// Returns the entries of the map in `text`, or no entries if the text is empty. Nested maps and lists are returned
// unchanged, for the caller to check. Returns kInvalidArgument if the text is not YAML or not a map, or has an alias, a
// tag or several documents. The error's message names `path` and the line.
Result<std::vector<ConfigEntry>> read_yaml(const std::string& text, const std::string& path);

}  // namespace tessera
