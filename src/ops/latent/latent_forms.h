// Selects the requests for which latent attention uses its direct form in a forward on CUDA (latent_attention.h).
// Requests with many new rows are selected, in order, until scratch memory has no room for the keys and values of the
// next one.
#pragma once

#include <climits>
#include <cstdint>

namespace tessera {

// The arguments of the selection. Kernels select the requests of each forward on the device, from lengths in device
// memory. The struct is trivially copyable.
struct LatentForms {
  int least_rows = INT_MAX;  // requests with fewer new rows take the absorbed form; INT_MAX: all requests do
  int capacity = 0;          // the number of keys that the workspace has room for
  int max_requests = 0;
  int num_rows = 0;                            // rows of the bucket
  const std::int32_t* num_requests = nullptr;  // [1]
  const std::int32_t* query_starts = nullptr;  // [max_requests + 1]
  const std::int32_t* kv_lens = nullptr;       // [max_requests]
};

}  // namespace tessera
