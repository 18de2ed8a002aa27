// Where tests find the repository and real data: as they were built, or as their environment says on a machine that
// they were carried to. For tests only.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tessera::testing {

inline std::string environment_or(const char* variable, const std::string& fallback) {
  const char* given = std::getenv(variable);
  return given != nullptr ? given : fallback;
}

// A file of the repository.
inline std::string source_path(const std::string& name) {
  return environment_or("TESSERA_SOURCE_DIR", TESSERA_SOURCE_DIR) + "/" + name;
}
inline std::string data_path(const std::string& name) { return source_path("tests/data/" + name); }

// Real data, which stands beside the repository where it is present.
inline std::string shared_path(const std::string& name) {
  return environment_or("TESSERA_SHARED_DIR", source_path("../shared")) + "/" + name;
}
inline bool shared_exists(const std::string& name) { return std::filesystem::exists(shared_path(name)); }

}  // namespace tessera::testing
