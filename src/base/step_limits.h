// The limits of a model's forwards. All code that schedules, plans or runs forwards must use the same limits.
#pragma once

#include <cstdint>

namespace tessera {

struct StepLimits {
  std::int64_t max_tokens = 2048;      // per forward
  std::int64_t max_requests = 256;     // per forward
  std::int64_t context_length = 2048;  // tokens per request
  std::int64_t page_size = 16;         // tokens per page of the KV cache
};

}  // namespace tessera
