#include "tessera/ops/attention/cuda_cache_map.h"

#include <array>
#include <cstdint>

namespace tessera {

Result<CUtensorMap> map_cache(const CudaAttention& attention, const std::byte* cache, const CacheBox& box) {
  const AttentionShape& shape = attention.shape;
  // These are counted in elements of the map.
  const int row = box.row_bytes / 2;
  const std::int64_t head = shape.head_dim * static_cast<std::int64_t>(ir::dtype_size(shape.cache_dtype)) / 2;
  const std::int64_t token = shape.kv_heads * head;
  return encode_tensor_map(
      shape.dtype, cache,
      std::array{TensorBox{.size = row, .stride = 1, .box = row},
                 TensorBox{.size = attention.num_pages * attention.page_size, .stride = token, .box = box.tokens},
                 TensorBox{.size = token / row, .stride = row, .box = static_cast<int>(head) / row}},
      box.swizzle);
}

}  // namespace tessera
