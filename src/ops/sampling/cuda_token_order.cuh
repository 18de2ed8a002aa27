// Functions with which a block of threads processes a row of logits as a distribution over tokens. The tokens have the
// order of the draw (token_order.h). A token has a key and an integer weight. A bin of a histogram holds sums over the
// tokens in the bin. The sums are integers, so they do not depend on the order of addition.
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/sampling/token_order.h"

namespace tessera::cuda {

// Keys ascend in the order of the draw, which is by descending logit, and by id among equal logits. The key of every
// logit that is not NaN is less than kNoToken.
inline constexpr std::uint64_t kNoToken = ~std::uint64_t{0};
inline constexpr int kIdBits = 32;  // the low bits of a key hold the id

__device__ inline std::uint64_t token_key(float logit, std::int64_t id) {
  const std::uint32_t bits = logit == 0.0f ? 0u : __float_as_uint(logit);  // -0 becomes 0
  const std::uint32_t descending = (bits & 0x80000000u) != 0 ? bits : ~(bits | 0x80000000u);
  return std::uint64_t{descending} << kIdBits | static_cast<std::uint32_t>(id);
}

// Returns token_key(), or kNoToken if the logit is NaN. The most probable token of a row has the smallest of these
// keys.
__device__ inline std::uint64_t greatest_key(float logit, std::int64_t id) {
  return isnan(logit) ? kNoToken : token_key(logit, id);
}

// Returns the logit of a key, or NaN for kNoToken.
__device__ inline float key_logit(std::uint64_t key) {
  const std::uint32_t descending = static_cast<std::uint32_t>(key >> kIdBits);
  return __uint_as_float((descending & 0x80000000u) != 0 ? descending : ~descending & 0x7fffffffu);
}

// Converts a row's logits to scaled logits, relative to the greatest logit.
struct RowScale {
  float greatest;     // the greatest logit of the row, which is finite
  float temperature;  // above 0

  // Returns the token's scaled logit, (logit - greatest) / temperature, in nats. It is 0 or less, or NaN for a NaN
  // logit.
  __device__ float nats(float logit) const { return (logit - greatest) / temperature; }
};

inline constexpr int kBinsPerNat = 16;
inline constexpr int kNatBins = 480;
static_assert(kNatBins == static_cast<int>(kReach) * kBinsPerNat);

// Returns ⌊2^42 · e^nats⌉ for nats in (-kReach, 0]. The exponential is computed in the steps of fast_exp in cpu_math.h,
// with fused multiply-adds. The weights are therefore equal to the weights that a CPU with fused multiply-adds
// computes.
__device__ inline std::uint64_t token_weight(float nats) {
  const float magic = 12582912.0f;  // 1.5 · 2^23; the low bits of the sum are then round(nats / ln 2)
  const float shifted = __fmaf_rn(nats, 1.44269504088896341f, magic);
  const float n = shifted - magic;
  float r = __fmaf_rn(-n, 0.693145751953125f, nats);
  r = __fmaf_rn(-n, 1.42860677e-6f, r);
  float p = 1.0f / 5040.0f;
  p = __fmaf_rn(p, r, 1.0f / 720.0f);
  p = __fmaf_rn(p, r, 1.0f / 120.0f);
  p = __fmaf_rn(p, r, 1.0f / 24.0f);
  p = __fmaf_rn(p, r, 1.0f / 6.0f);
  p = __fmaf_rn(p, r, 0.5f);
  p = __fmaf_rn(p, r, 1.0f);
  p = __fmaf_rn(p, r, 1.0f);
  const int exponent = __float_as_int(shifted) - __float_as_int(magic);
  return __float2ull_rn(p * __int_as_float((exponent + kWeightBits + 127) << 23));
}

// A few logits of the calling thread, which are loaded together.
template <int N, int kPacks>
struct TokenBatch {
  static constexpr int kSize = kPacks * N;
  static_assert(kSize <= 32);  // a mask has one bit for each logit

  Pack<float, N> packs[kPacks];  // values past the last logit are NaN
  std::int64_t first;            // the id of packs[0].at[0]
  std::int64_t step;             // the distance between the first ids of two neighbouring packs

  __device__ float logit(int i) const { return packs[i / N].at[i % N]; }
  __device__ std::int64_t id(int i) const { return first + i / N * step + i % N; }
};

// Calls f(batch) for the logits [begin, end) of a row. The block's threads divide these logits among themselves.
// `begin` and `end` are multiples of N.
template <int N, int kPacks, class F>
__device__ void for_each_batch(const float* logits, std::int64_t begin, std::int64_t end, const F& f) {
  TokenBatch<N, kPacks> batch;
  batch.step = static_cast<std::int64_t>(blockDim.x) * N;
  for (batch.first = begin + static_cast<std::int64_t>(threadIdx.x) * N; batch.first < end;
       batch.first += kPacks * batch.step) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t at = batch.first + p * batch.step;
      if (at < end) {
        batch.packs[p] = load_pack<float, N>(logits + at);
      } else {
#pragma unroll
        for (int j = 0; j < N; ++j) batch.packs[p].at[j] = NAN;
      }
    }
    f(batch);
  }
}

struct Tally {
  std::uint64_t count;
  std::uint64_t weight;
};
__device__ inline Tally operator+(const Tally& a, const Tally& b) { return {a.count + b.count, a.weight + b.weight}; }
__device__ inline Tally operator-(const Tally& a, const Tally& b) { return {a.count - b.count, a.weight - b.weight}; }

// The number of tokens, the weight and the greatest id of each bin, in shared memory. The hardware's atomic additions
// in shared memory take 32 bits, so a weight is kept as two words with a carry.
template <int kBins>
struct Histogram {
  unsigned count[kBins];
  unsigned low[kBins];
  unsigned high[kBins];
  int token[kBins];  // the greatest id of a token in the bin

  // Clears the bins. All threads of the block call this function, and a barrier must follow.
  __device__ void clear() {
    for (int b = static_cast<int>(threadIdx.x); b < kBins; b += static_cast<int>(blockDim.x)) {
      count[b] = low[b] = high[b] = 0;
      token[b] = -1;
    }
  }
  __device__ void add(int bin, std::uint64_t weight, int id) {
    atomicAdd(&count[bin], 1u);
    atomicMax(&token[bin], id);
    const unsigned word = static_cast<unsigned>(weight);
    const unsigned before = atomicAdd(&low[bin], word);
    const unsigned carry = before + word < before ? 1u : 0u;
    const unsigned upper = static_cast<unsigned>(weight >> 32) + carry;
    if (upper != 0) atomicAdd(&high[bin], upper);
  }
  __device__ Tally at(int bin) const { return {count[bin], std::uint64_t{high[bin]} << 32 | low[bin]}; }
};

// The bins of a row's tokens, in device memory. A bin covers a range of distances to the greatest logit, in nats. The
// bins together cover the distances up to kReach.
struct RowBins {
  unsigned long long weight[kNatBins];
  unsigned count[kNatBins];
  unsigned first[kNatBins];  // the smallest upper half (upper 32 bits) of a key in the bin
  unsigned last[kNatBins];   // the greatest upper half of a key in the bin
  int token[kNatBins];       // the greatest id of a token in the bin

  __device__ void clear() {
    for (int b = static_cast<int>(threadIdx.x); b < kNatBins; b += static_cast<int>(blockDim.x)) {
      weight[b] = 0;
      count[b] = last[b] = 0;
      first[b] = ~0u;
      token[b] = -1;
    }
  }
};

}  // namespace tessera::cuda
