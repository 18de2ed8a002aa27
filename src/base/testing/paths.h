// The paths of the repository and of real data, for tests. The build sets them. Environment variables override them,
// for tests that are run on another machine.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tessera::testing {

inline std::string environment_or(const char* variable, const std::string& fallback) {
  const char* given = std::getenv(variable);
  return given != nullptr ? given : fallback;
}

// Returns the path of a file of the repository.
inline std::string source_path(const std::string& name) {
  return environment_or("TESSERA_SOURCE_DIR", TESSERA_SOURCE_DIR) + "/" + name;
}
inline std::string data_path(const std::string& name) { return source_path("tests/data/" + name); }

// Returns the path of a file of real data. The real data are in a folder beside the repository. This folder may be
// absent.
inline std::string shared_path(const std::string& name) {
  return environment_or("TESSERA_SHARED_DIR", source_path("../shared")) + "/" + name;
}
inline bool shared_exists(const std::string& name) { return std::filesystem::exists(shared_path(name)); }

}  // namespace tessera::testing
