// Where tests find the repository, and the device they run on: here what they were built with, and on a machine that
// they were carried to what its environment says.
#pragma once

#include <cstdlib>
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

// "cpu", or what TESSERA_TEST_DEVICE says.
inline std::string test_device_name() { return environment_or("TESSERA_TEST_DEVICE", "cpu"); }

}  // namespace tessera::testing
