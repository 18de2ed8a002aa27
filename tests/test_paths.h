// Where tests find their data: the repository's own, and real data beside it where that is present.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tessera::testing {

inline std::string data_path(const std::string& name) { return std::string(TESSERA_SOURCE_DIR "/tests/data/") + name; }

inline std::string shared_path(const std::string& name) {
  const char* given = std::getenv("TESSERA_SHARED_DIR");
  return std::string(given != nullptr ? given : TESSERA_SOURCE_DIR "/../shared") + "/" + name;
}

inline bool shared_exists(const std::string& name) { return std::filesystem::exists(shared_path(name)); }

}  // namespace tessera::testing
