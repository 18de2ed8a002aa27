// Helpers of the fuzz targets. Each target defines
//   extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace tessera::fuzz {

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Aborts if a promise of the code under test is broken.
inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", promise);
  std::abort();
}

// Takes one byte off the input's front to choose a number below `count`.
inline std::size_t take_choice(std::string_view& input, std::size_t count) {
  if (input.empty()) return 0;
  const std::size_t choice = static_cast<unsigned char>(input.front()) % count;
  input.remove_prefix(1);
  return choice;
}

inline std::string source_path(const std::string& name) { return std::string(TESSERA_SOURCE_DIR) + "/" + name; }

}  // namespace tessera::fuzz
