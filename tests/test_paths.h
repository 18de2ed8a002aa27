// Where tests find their data (the repository's own, and real data beside it where that is present), and the device
// they run on.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tessera::testing {

inline std::string environment_or(const char* variable, const std::string& fallback) {
  const char* given = std::getenv(variable);
  return given != nullptr ? given : fallback;
}

// The repository; elsewhere on a machine that tests were carried to.
inline std::string source_path(const std::string& name) {
  return environment_or("TESSERA_SOURCE_DIR", TESSERA_SOURCE_DIR) + "/" + name;
}

inline std::string data_path(const std::string& name) { return source_path("tests/data/" + name); }

inline std::string shared_path(const std::string& name) {
  return environment_or("TESSERA_SHARED_DIR", source_path("../shared")) + "/" + name;
}

inline bool shared_exists(const std::string& name) { return std::filesystem::exists(shared_path(name)); }

// "cpu", or what TESSERA_TEST_DEVICE says.
inline std::string test_device() { return environment_or("TESSERA_TEST_DEVICE", "cpu"); }

}  // namespace tessera::testing
