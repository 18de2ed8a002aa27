#include "tessera/server/api_job.h"

#include <chrono>

namespace tessera {

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace tessera
