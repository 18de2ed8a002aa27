// Where tests find real data, which stands beside the repository where it is present.
#pragma once

#include <filesystem>
#include <string>

#include "tessera/device/testing/environment.h"

namespace tessera::testing {

inline std::string shared_path(const std::string& name) {
  return environment_or("TESSERA_SHARED_DIR", source_path("../shared")) + "/" + name;
}

inline bool shared_exists(const std::string& name) { return std::filesystem::exists(shared_path(name)); }

}  // namespace tessera::testing
