// For tests of the engine: the golden checkpoints, and the device to run on.
#pragma once

#include <cstdlib>
#include <string>

namespace tessera::testing {

// A machine that tests were carried to says where the repository's data is, and which device it has.
inline std::string environment_or(const char* variable, const char* fallback) {
  const char* given = std::getenv(variable);
  return given != nullptr ? given : fallback;
}

inline const std::string kGoldens = environment_or("TESSERA_SOURCE_DIR", TESSERA_SOURCE_DIR) + "/tests/data/goldens/";

}  // namespace tessera::testing
