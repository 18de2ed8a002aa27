// Exchanges values between blocks of one launch without a barrier. Each word of 8 bytes has a payload and a tag, and is
// written and read atomically. A reader polls the words until all have the tag that it expects. So a value travels once
// through the L2 cache, and needs no fence or counter. Two sets of words are used in turn. Before a block overwrites a
// set, it has read a value that is newer than the set's content. All readers of the set contributed to this value after
// they had read the set. So no block still needs the set's old content.
//
// All blocks that wait for one another must be resident at once.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda {

using TaggedWord = unsigned long long;
struct TaggedPair {
  TaggedWord first;
  TaggedWord second;
};

__device__ inline std::uint32_t tag_of(TaggedWord word) { return static_cast<std::uint32_t>(word >> 32); }
__device__ inline std::uint32_t payload_of(TaggedWord word) { return static_cast<std::uint32_t>(word); }

__device__ inline TaggedWord load_word(const TaggedWord* from) {
  TaggedWord word = 0;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
// Loads two neighbouring words. `from` is aligned to 16 bytes.
__device__ inline TaggedPair load_words(const TaggedWord* from) {
  TaggedPair pair;
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(pair.first), "=l"(pair.second)
               : "l"(from)
               : "memory");
  return pair;
}
__device__ inline void store_word(TaggedWord* to, std::uint32_t payload, std::uint32_t tag) {
  const TaggedWord word = static_cast<TaggedWord>(tag) << 32 | payload;
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

// Packs two neighbouring values into a payload.
__device__ inline std::uint32_t pack_values(float low, float high) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(two);
}
__device__ inline float2 unpack_values(std::uint32_t payload) {
  return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(payload));
}

// Waits until the two neighbouring words at each address in `from` have the tag. Sets values[i] to the four values of
// the words at from[i]. The addresses are multiples of 16 bytes.
template <int kPlaces>
__device__ inline void wait_for_fours(const TaggedWord* const (&from)[kPlaces], std::uint32_t tag,
                                      float (&values)[kPlaces][4]) {
  TaggedPair pairs[kPlaces];
  std::uint32_t wrong;
  do {
    wrong = 0;
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) pairs[i] = load_words(from[i]);
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) wrong |= (tag_of(pairs[i].first) ^ tag) | (tag_of(pairs[i].second) ^ tag);
  } while (wrong != 0);
#pragma unroll
  for (int i = 0; i < kPlaces; ++i) {
    const float2 low = unpack_values(payload_of(pairs[i].first));
    const float2 high = unpack_values(payload_of(pairs[i].second));
    values[i][0] = low.x;
    values[i][1] = low.y;
    values[i][2] = high.x;
    values[i][3] = high.y;
  }
}

}  // namespace tessera::cuda
