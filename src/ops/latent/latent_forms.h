// Selects the requests of a forward that latent attention computes in its direct form on CUDA (latent_attention.h).
// These are requests with many new rows, as long as there is room for the keys and values of all of them.
#pragma once

#include <climits>
#include <cstdint>

namespace tessera {

// The arguments of the selection. Kernels select the requests of each forward on the device, from lengths in device
// memory. Trivially copyable.
struct LatentForms {
  int least_rows = INT_MAX;  // the fewest new rows of a request in the direct form; INT_MAX: no request has it
  int capacity = 0;          // the number of keys that there is room for
  int max_requests = 0;
  int num_rows = 0;                            // rows of the bucket
  const std::int32_t* num_requests = nullptr;  // [1]
  const std::int32_t* query_starts = nullptr;  // [max_requests + 1]
  const std::int32_t* kv_lens = nullptr;       // [max_requests]
};

}  // namespace tessera
