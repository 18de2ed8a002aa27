#include "tessera/server/api_job.h"

#include <fmt/format.h>

#include <chrono>
#include <random>

namespace tessera {

std::string make_id(std::string_view prefix) {
  thread_local std::random_device source;
  thread_local std::mt19937_64 random((static_cast<std::uint64_t>(source()) << 32) | source());
  return fmt::format("{}{:016x}{:016x}", prefix, random(), random());
}

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace tessera
