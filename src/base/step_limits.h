// The limits of a model's forwards, shared by all code that schedules, plans or runs forwards.
#pragma once

#include <cstdint>

namespace tessera {

struct StepLimits {
  std::int64_t max_tokens = 2048;      // tokens in one forward
  std::int64_t max_requests = 256;     // requests in one forward; each draft counts as one more
  std::int64_t context_length = 2048;  // tokens in one request
  std::int64_t page_size = 16;         // tokens per page of the KV cache
};

}  // namespace tessera
