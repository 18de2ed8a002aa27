// Reads keys and values of a cache of any type as float32, for the CPU's tiles (attention_tile.cpp).
//
// A tile reads the keys of one block at a time. find_rows() finds the block's keys in the cache, and CacheRow<Y> reads
// one of them. Y is float, BFloat16, Float16, Float8E4M3 or Int8Cache. CacheRow multiplies the elements of an Int8Cache
// by their scales. It does not multiply the elements of a Float8E4M3 cache by the cache's scales, because the tile
// kernel multiplies the queries and the outputs by these scales instead.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tessera/ops/attention/attention_tile.h"
#include "tessera/ops/cache/int8_cache.h"
#include "tessera/ops/cpu/cpu_vector.h"

namespace tessera {

// The keys [begin, end) of a block.
struct KeyRange {
  std::int64_t begin;
  std::int64_t end;
};

// One key or value of the tile's head.
template <class Y>
struct CacheRow {
  const Y* at;

  TESSERA_INLINE Vec16 load(std::int64_t d) const { return load16(at + d); }
  TESSERA_INLINE float number(std::int64_t d) const { return to_float(at[d]); }
};

typedef std::int8_t VecCode16 __attribute__((vector_size(16)));
typedef std::int16_t VecShort16 __attribute__((vector_size(32)));

template <>
struct CacheRow<Int8Cache> {
  const std::int8_t* codes;
  const float* scales;  // one scale for each block of kInt8Block codes

  // Widens codes to 32 bits in two steps, because in one step g++ 12 widens them one by one. `d` is a multiple of 16,
  // so all 16 codes have the same scale.
  TESSERA_INLINE Vec16 load(std::int64_t d) const {
    VecCode16 narrow;
    std::memcpy(&narrow, codes + d, sizeof(narrow));
    const VecI16 wide = __builtin_convertvector(__builtin_convertvector(narrow, VecShort16), VecI16);
    return __builtin_convertvector(wide, Vec16) * splat16(scales[d / kInt8Block]);
  }
  TESSERA_INLINE float number(std::int64_t d) const { return static_cast<float>(codes[d]) * scales[d / kInt8Block]; }
};

// Returns key or value `j` of a block. `scales` are the scales of the block's keys or values. They are used only for an
// Int8Cache.
template <class Y>
TESSERA_INLINE CacheRow<Y> row_at(const AttentionProblem& p, const std::byte* cache, const std::int64_t* offsets,
                                  [[maybe_unused]] const float* scales, std::int64_t j) {
  if constexpr (std::is_same_v<Y, Int8Cache>) {
    return {reinterpret_cast<const std::int8_t*>(cache) + offsets[j], scales + j * p.int8_blocks()};
  } else {
    return {reinterpret_cast<const Y*>(cache) + offsets[j]};
  }
}
template <class Y>
TESSERA_INLINE CacheRow<Y> key_at(const AttentionProblem& p, const AttentionScratch& s, std::int64_t j) {
  return row_at<Y>(p, p.k_cache, s.offsets, s.key_scales, j);
}
template <class Y>
TESSERA_INLINE CacheRow<Y> value_at(const AttentionProblem& p, const AttentionScratch& s, std::int64_t j) {
  return row_at<Y>(p, p.v_cache, s.offsets, s.value_scales, j);
}

// Converts the scales of `count` blocks of codes from bfloat16 to float32.
TESSERA_INLINE void widen_scales(const std::byte* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t half;
    std::memcpy(&half, from + i * kInt8ScaleBytes, sizeof(half));
    to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
  }
}

// Finds where keys lie in the cache: first the keys in `present`, which belong to the block that begins at position
// `block`, and then the next kPrefetchKeys keys, which are only prefetched. For positions from `end` on, repeats the
// key at end - 1.
template <class Y>
TESSERA_INLINE void find_rows(const AttentionProblem& p, const AttentionTile& tile, const AttentionScratch& s,
                              std::int64_t block, KeyRange present, std::int64_t end) {
  const Int8Layout layout{.page_size = p.page_size, .kv_heads = p.kv_heads, .head_dim = p.head_dim};
  for (std::int64_t j = present.begin; j < present.end + kPrefetchKeys; ++j) {
    const std::int64_t position = std::min(block + j, end - 1);
    const std::int64_t page = tile.pages[position / p.page_size];
    const std::int64_t token = position % p.page_size;
    s.offsets[j] = std::is_same_v<Y, Int8Cache> ? layout.codes(page, tile.head, token)
                                                : ((page * p.page_size + token) * p.kv_heads + tile.head) * p.head_dim;
  }
  if constexpr (std::is_same_v<Y, Int8Cache>) {
    const std::int64_t blocks = layout.blocks();
    std::int64_t in_page = 0;  // number of keys that follow one another in a page
    for (std::int64_t j = present.begin; j < present.end; j += in_page) {
      const std::int64_t token = (block + j) % p.page_size;
      in_page = std::min(p.page_size - token, present.end - j);
      const std::int64_t at = layout.scales(tile.pages[(block + j) / p.page_size], tile.head, token);
      widen_scales(p.k_cache + at, in_page * blocks, s.key_scales + j * blocks);
      widen_scales(p.v_cache + at, in_page * blocks, s.value_scales + j * blocks);
    }
  }
}

}  // namespace tessera
