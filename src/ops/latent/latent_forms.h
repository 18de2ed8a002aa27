// Which requests of a forward latent attention computes in its direct form on CUDA (latent_attention.h): those of many
// new rows, as long as the keys and values of all of them have room.
#pragma once

#include <climits>
#include <cstdint>

namespace tessera {

// Decided for each forward where the kernels run, from lengths in device memory. Trivially copyable.
struct LatentForms {
  int least_rows = INT_MAX;  // new rows of a request in the direct form; INT_MAX: there is none
  int capacity = 0;          // keys that there is room for
  int max_requests = 0;
  int num_rows = 0;                            // of the bucket
  const std::int32_t* num_requests = nullptr;  // [1]
  const std::int32_t* query_starts = nullptr;  // [max_requests + 1]
  const std::int32_t* kv_lens = nullptr;       // [max_requests]
};

}  // namespace tessera
