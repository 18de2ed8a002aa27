#include "tessera/ops/cache/int8_cache.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tessera/ops/cpu/cpu_math.h"

namespace tessera {
namespace {

constexpr float kGreatestCode = 127.0f;

// Returns the scale of a block, rounded up to a bfloat16. Returns NaN if `poison` is not 0, that is, if the block has
// an infinity or a NaN.
TESSERA_INLINE std::uint16_t scale_of(float greatest, float poison) {
  const float scale = greatest / kGreatestCode;
  if (!(poison == 0.0f)) return 0x7fc0;
  if (scale < std::numeric_limits<float>::min()) return 0;
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(scale) + 0xffffu) >> 16);
}

template <class X>
TESSERA_INLINE void store_block(const X* from, std::int64_t count, std::int8_t* codes, std::byte* stored_scale) {
  float greatest = 0.0f;
  float poison = 0.0f;
#pragma omp simd reduction(max : greatest) reduction(+ : poison)
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = to_float(from[i]);
    const float magnitude = x < 0.0f ? -x : x;
    greatest = magnitude > greatest ? magnitude : greatest;
    poison += x * 0.0f;
  }
  const std::uint16_t half = scale_of(greatest, poison);
  std::memcpy(stored_scale, &half, sizeof(half));
  const float scale = std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
  const float factor = half == 0 ? 0.0f : 1.0f / scale;
  // Adding 1.5·2^23 to a number leaves the rounded number in the low bits of the sum. A cast to an integer would be
  // undefined for NaN.
  constexpr float kMagic = 12582912.0f;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = static_cast<std::int8_t>(std::bit_cast<std::int32_t>(to_float(from[i]) * factor + kMagic));
}

template <class X>
TESSERA_CPU_CLONES void store_head(const X* from, std::int64_t count, std::int8_t* codes, std::byte* scales) {
  const std::int64_t whole = count / kInt8Block * kInt8Block;
  std::int64_t i = 0;
  for (; i < whole; i += kInt8Block, scales += kInt8ScaleBytes) store_block(from + i, kInt8Block, codes + i, scales);
  if (i < count) store_block(from + i, count - i, codes + i, scales);
}

}  // namespace

template <class X>
void store_int8(const X* from, Int8Cache* cache, const Int8Layout& layout, std::int64_t slot, std::int64_t head,
                std::int64_t heads) {
  auto* bytes = reinterpret_cast<std::byte*>(cache);
  const std::int64_t page = slot / layout.page_size;
  const std::int64_t token = slot % layout.page_size;
  for (std::int64_t h = head; h < head + heads; ++h, from += layout.head_dim)
    store_head(from, layout.head_dim, reinterpret_cast<std::int8_t*>(bytes + layout.codes(page, h, token)),
               bytes + layout.scales(page, h, token));
}

template void store_int8(const float*, Int8Cache*, const Int8Layout&, std::int64_t, std::int64_t, std::int64_t);
template void store_int8(const BFloat16*, Int8Cache*, const Int8Layout&, std::int64_t, std::int64_t, std::int64_t);
template void store_int8(const Float16*, Int8Cache*, const Int8Layout&, std::int64_t, std::int64_t, std::int64_t);

}  // namespace tessera
