// The limits of a model's forwards, which whatever schedules, plans or runs them must share.
#pragma once

#include <cstdint>

namespace tessera {

struct StepLimits {
  std::int64_t max_tokens = 2048;      // of one forward
  std::int64_t max_requests = 256;     // of one forward
  std::int64_t context_length = 2048;  // of one request, in tokens
  std::int64_t page_size = 16;         // of the KV cache, in tokens
};

}  // namespace tessera
