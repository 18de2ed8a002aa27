#include "tessera/server/api_job.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>

namespace tessera {

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::int64_t unix_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string iso_time() {
  constexpr std::int64_t kMicroseconds = 1'000'000;
  const std::int64_t now =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(static_cast<std::time_t>(now / kMicroseconds)),
                     now % kMicroseconds);
}

}  // namespace tessera
