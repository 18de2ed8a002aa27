// The tensor map through which Hopper's kernels copy keys or values of a paged cache whole tokens at a time
// (decode_attention.cuh and prefill_widening.cuh).
#pragma once

#include <cuda.h>

#include <cstddef>

#include "tessera/base/status.h"
#include "tessera/ops/attention/cuda_attention.h"
#include "tessera/ops/cuda/tensor_map.h"

namespace tessera {

// A box has the keys or values of `tokens` tokens for one KV head, cut into rows of `row_bytes` bytes. In shared memory
// it is [bytes of a head / row_bytes, tokens, row_bytes]. `row_bytes` is even and divides the bytes of a head.
struct CacheBox {
  int tokens;
  int row_bytes;
  Swizzle swizzle;
};

// Encodes the tensor map of `cache`, which is attention.k_cache or attention.v_cache. Let R be the number of rows of a
// head. The box that begins at token t of KV head h has the coordinates 0, t, h · R. The map's elements have two bytes,
// so in a cache of E4M3 one element of the map is a pair of numbers. The map is valid as long as the cache is. Any
// thread may call the function. It fails where encode_tensor_map() fails.
Result<CUtensorMap> map_cache(const CudaAttention& attention, const std::byte* cache, const CacheBox& box);

}  // namespace tessera
