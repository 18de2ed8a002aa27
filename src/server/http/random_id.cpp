#include "tessera/server/http/random_id.h"

#include <fmt/format.h>

#include <cstdint>
#include <random>

namespace tessera {

std::string make_id(std::string_view prefix) {
  thread_local std::random_device source;
  thread_local std::mt19937_64 random((static_cast<std::uint64_t>(source()) << 32) | source());
  return fmt::format("{}{:016x}{:016x}", prefix, random(), random());
}

}  // namespace tessera
