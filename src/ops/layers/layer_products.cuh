// Computes the matrix products of a decoder layer, within the launch of all layers (decoder_layers.cuh). A product
// multiplies at most eight rows of x, which arrive as tagged words, by groups of eight rows of w, which arrive through
// the ring.
//
// Each of the eight warps multiplies an eighth of the columns: 32 of every 256 columns, eight for each lane of a quad.
// A lane loads these eight columns of x or w as 16 bytes, and uses them as an instruction's operands. The columns of
// one instruction need not be neighbours; they only have to be the same in both of its operands. The warps' sums are
// added up in shared memory.
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/cuda_activation.cuh"
#include "tessera/ops/cuda/cuda_norm.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"
#include "tessera/ops/cuda/weight_ring.cuh"
#include "tessera/ops/layers/tagged_words.cuh"

namespace tessera::cuda::decoder_layers {

inline constexpr int kMostGroups = 6;  // maximum number of groups of rows of w that a block multiplies

// Synchronises the warps that multiply, without the warp that fills the ring.
__device__ inline void sync_multiplying() { asm volatile("bar.sync 1, %0;" ::"n"(kWarps * kWarp) : "memory"); }

template <int kRows>
struct ProductSums {
  float products[kWarps][kRows][kMostGroups * 8 + 4];
  float squares[kWarps][kRows];  // sums of squares of x, if a norm precedes the product

  // Returns two neighbouring elements of y.
  __device__ float2 total(int row, int column) const {
    float2 sum{};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float2 part = *reinterpret_cast<const float2*>(&products[w][row][column]);
      sum.x += part.x;
      sum.y += part.y;
    }
    return sum;
  }
  __device__ float rms(int row, int columns, float eps) const {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += squares[w][row];
    return rsqrtf(sum / static_cast<float>(columns) + eps);
  }
};

// Returns T(silu(T(gate))) · T(up), where T rounds to bfloat16. `gate` and `up` are float32 sums.
__device__ inline float gated(float gate, float up) {
  using T = __nv_bfloat16;
  return rounded<T>(Silu{}(rounded<T>(gate))) * rounded<T>(up);
}

// The columns of x [rows, kParts · 1024] that a warp multiplies. A lane has row lane / 4; rows past the last are zeros.
template <int kParts>
class Operand {
 public:
  // Waits for the words of x [rows, kParts · 1024].
  __device__ Operand(const TaggedWord* words, int rows, std::uint32_t tag) {
    if (row_ >= rows) {
#pragma unroll
      for (auto& part : x_)
#pragma unroll
        for (uint4& columns : part) columns = make_uint4(0, 0, 0, 0);
    } else {
      const TaggedWord* from = words + row_ * (kParts * kPartColumns / 2) + column_ / 2;
      while (!load(from, tag)) {
      }
    }
    __syncwarp();
  }

  // Stores the sums of squares of this warp's columns.
  template <int kRows>
  __device__ void add_squares(ProductSums<kRows>& sums) const {
    static_assert(kParts == 1);
    float squares[2][4] = {};  // x · xᵀ, whose diagonal holds the sums of squares
#pragma unroll
    for (const uint4& x : x_[0]) {
      multiply(squares[0], x.x, x.y, x.x, x.y);
      multiply(squares[1], x.z, x.w, x.z, x.w);
    }
    if (row_ >= kRows || row_ / 2 != lane_ % 4) return;  // only lanes with an element of the diagonal store it
    sums.squares[warp_][row_] = row_ % 2 == 0 ? squares[0][0] + squares[1][0] : squares[0][1] + squares[1][1];
  }
  // Stores the sums of squares of x, and then multiplies x by the norm's weight, which is in shared memory.
  template <int kRows>
  __device__ void normalise(const unsigned char* weight, ProductSums<kRows>& sums) {
    add_squares(sums);
#pragma unroll
    for (int d = 0; d < kSteps; ++d) {
      const uint4 w = *reinterpret_cast<const uint4*>(weight + column_ * 2 + d * kStepBytes);
      uint4& x = x_[0][d];
      x = make_uint4(times(x.x, w.x), times(x.y, w.y), times(x.z, w.z), times(x.w, w.w));
    }
  }
  // Multiplies the next kGroups groups of eight rows of w, and stores the results in the first 8 · kGroups columns of
  // `sums`. The function first waits for all of these groups, so that the loads and products of several groups can
  // overlap. Usually the groups have arrived already.
  template <int kGroups, int kSlots, int kRows>
  __device__ void multiply(WeightRing<kSlots>& ring, ProductSums<kRows>& sums) const {
    static_assert(kGroups <= kMostGroups && kGroups * kParts <= kSlots);
    float sum[kGroups][2][4] = {};
#pragma unroll
    for (int i = 0; i < kGroups * kParts; ++i) ring.wait(i);
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int c = 0; c < kParts; ++c) {
        const unsigned char* from = ring.stage(g * kParts + c) + row_ * kRowBytes + column_ * 2;
#pragma unroll
        for (int d = 0; d < kSteps; ++d) {
          const uint4 w = *reinterpret_cast<const uint4*>(from + d * kStepBytes);
          const uint4 x = x_[c][d];
          multiply(sum[g][0], x.x, x.y, w.x, w.y);
          multiply(sum[g][1], x.z, x.w, w.z, w.w);
        }
      }
    ring.release(kGroups * kParts);
    if (row_ >= kRows) return;
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
      *reinterpret_cast<float2*>(&sums.products[warp_][row_][g * 8 + lane_ % 4 * 2]) =
          make_float2(sum[g][0][0] + sum[g][1][0], sum[g][0][1] + sum[g][1][1]);
  }

 private:
  static constexpr int kSteps = kPartColumns / (kWarps * kWarp);
  static constexpr int kStepBytes = kPartColumns * 2 / kSteps;

  // Adds one instruction's product to `sum`. The instruction multiplies 16 rows, of which only the first eight come
  // from x; the others are zeros.
  __device__ static void multiply(float (&sum)[4], std::uint32_t x0, std::uint32_t x1, std::uint32_t w0,
                                  std::uint32_t w1) {
    multiply_tile<__nv_bfloat16>(sum, {x0, 0, x1, 0}, w0, w1);
  }
  __device__ static std::uint32_t times(std::uint32_t a, std::uint32_t b) {
    const __nv_bfloat162 y =
        __hmul2(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
    return reinterpret_cast<const std::uint32_t&>(y);
  }
  // Loads the words of x, and returns whether all have arrived. It starts all loads before it waits for the first one.
  __device__ bool load(const TaggedWord* from, std::uint32_t tag) {
    TaggedPair low[kParts][kSteps];
    TaggedPair high[kParts][kSteps];
#pragma unroll
    for (int c = 0; c < kParts; ++c)
#pragma unroll
      for (int d = 0; d < kSteps; ++d) {
        const TaggedWord* at = from + (c * kPartColumns + d * kStepBytes / 2) / 2;
        low[c][d] = load_words(at);
        high[c][d] = load_words(at + 2);
      }
    std::uint32_t wrong = 0;
#pragma unroll
    for (int c = 0; c < kParts; ++c)
#pragma unroll
      for (int d = 0; d < kSteps; ++d) {
        for (const TaggedPair& pair : {low[c][d], high[c][d]})
          wrong |= (tag_of(pair.first) ^ tag) | (tag_of(pair.second) ^ tag);
        x_[c][d] = make_uint4(payload_of(low[c][d].first), payload_of(low[c][d].second), payload_of(high[c][d].first),
                              payload_of(high[c][d].second));
      }
    return wrong == 0;
  }

  int lane_ = static_cast<int>(threadIdx.x) % kWarp;
  int warp_ = static_cast<int>(threadIdx.x) / kWarp;
  int row_ = lane_ / 4;
  int column_ = warp_ * kWarp + lane_ % 4 * 8;
  uint4 x_[kParts][kSteps];
};

}  // namespace tessera::cuda::decoder_layers
