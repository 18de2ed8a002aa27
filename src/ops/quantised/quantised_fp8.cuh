// quantised_linear of up to 128 rows rounded to E4M3 with w in E4M3, on Hopper: the tensor cores multiply both as they
// are (quantised_block.cuh has the rest, and rounded_many.cuh more rows).
//
// A kernel that rounded x before would take as long as reading a small matrix. So each block rounds the rows of a stage
// itself, in shared memory, while it waits for weights anyway: a stage of 128 columns is a group that has a scale in
// each row. The tensor cores add with about 14 bits, so a stage's sums are added in float32, times their scales.
//
// The bound is reading w once.
#pragma once

#include "tessera/ops/quantised/quantised_block.cuh"
#include "tessera/ops/quantised/rounded_rows.cuh"

namespace tessera::cuda::quantised {

static_assert(kRoundedGroup == kStageColumns);

// Rounds the rows of a stage. Both matrices in shared memory have rows of 128 bytes whose 16-byte chunks the copy
// engine permutes by the row: two boxes of 64 columns at `x`, one of 128 at `to`. All threads that multiply call it.
template <class T, int kN>
__device__ inline void round_stage(std::uint32_t x, std::uint32_t to, std::uint32_t scales) {
  const int thread = static_cast<int>(threadIdx.x);
  const int part = thread % kGroupThreads;  // eight columns of a row
#pragma unroll
  for (int first = 0; first < kN; first += kTileWarps * kWarp / kGroupThreads) {
    const int row = first + thread / kGroupThreads;
    const auto from =
        static_cast<std::uint32_t>(part / 8 * kN * kBoxRowBytes + row * kBoxRowBytes + ((part % 8) ^ (row & 7)) * 16);
    uint4 eight;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(eight.x), "=r"(eight.y), "=r"(eight.z), "=r"(eight.w)
                 : "r"(x + from));
    Pack<float, 4> values[2];
    const std::uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = unpack_two<T>(pairs[i]);
      values[i / 2].at[i % 2 * 2] = two.x;
      values[i / 2].at[i % 2 * 2 + 1] = two.y;
    }
    const float scale = scale_of_group(values);
    const uint2 rounded = round_eight(values, 1.0F / scale);
    const auto at = static_cast<std::uint32_t>(row * kBoxRowBytes + ((part / 2) ^ (row & 7)) * 16 + part % 2 * 8);
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to + at), "r"(rounded.x), "r"(rounded.y) : "memory");
    if (part == 0)
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(scales + static_cast<std::uint32_t>(row * 4)), "f"(scale)
                   : "memory");
  }
}

__device__ inline void sync_multiplying_warps() {
  asm volatile("bar.sync 1, %0;" ::"n"(kTileWarps * kWarp) : "memory");
}

// A Product of quantised_block().
template <class T, int kN>
struct RoundedProduct {
  using Element = T;
  static constexpr int kWeightRowBytes = kStageColumns;
  static constexpr int kExtraBytes = kN * (kStageColumns + 4);  // rounded rows and their scales
  using Ring = TileRing<kN, kTileWeights * kWeightRowBytes>;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __device__ static void multiply(const TiledQuantised<T>& p, const TilePlace& at, const Ring& ring, int weight,
                                  const int (&w_rows)[2], float (&sum)[kN / 2], float (&factor)[2]) {
    const bool by_stage = p.w.num_groups > 1;  // w has a scale for each 128 columns
    const float* of_rows[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      of_rows[half] = reinterpret_cast<const float*>(p.w.scales) +
                      w_rows[half] / static_cast<int>(p.w.format.group_rows) * p.w.num_groups;
    float w_scale[2] = {of_rows[0][by_stage ? at.first : 0], of_rows[1][by_stage ? at.first : 0]};
    factor[0] = by_stage ? 1.0F : w_scale[0];
    factor[1] = by_stage ? 1.0F : w_scale[1];
#pragma unroll
    for (float& total : sum) total = 0;
    const std::uint32_t rounded = ring.end();
    const std::uint32_t scales = rounded + kN * kStageColumns;
    const std::uint32_t of_warpgroup = static_cast<std::uint32_t>(weight / 64 * 64) * kBoxRowBytes;
    for (int s = 0, slot = 0, turn = 0; s < at.count; ++s) {
      ring.full[slot].wait(turn & 1);
      if (s > 0) sync_multiplying_warps();  // both warpgroups have multiplied the rounded rows of the stage before
      round_stage<T, kN>(ring.rows(slot), rounded, scales);
      let_copies_see_shared_stores();
      sync_multiplying_warps();
      float part[kN / 2];
      const std::uint64_t a = matrix_at(ring.weights(slot) + of_warpgroup);
      const std::uint64_t b = matrix_at(rounded);
      begin_products();
#pragma unroll
      for (int d = 0; d < kStageColumns / 32; ++d) multiply_e4m3<kN>(part, a + d * kMatrixStep, b + d * kMatrixStep, d);
      end_products();
      const float now[2] = {by_stage ? w_scale[0] : 1.0F, by_stage ? w_scale[1] : 1.0F};
      if (by_stage && s + 1 < at.count) {
#pragma unroll
        for (int half = 0; half < 2; ++half) w_scale[half] = of_rows[half][at.first + s + 1];
      }
      wait_for_products<0>();
      hold(part);
      ring.release(slot, p.shared);
      const std::uint32_t of_thread = scales + threadIdx.x % 4 * 8;
#pragma unroll
      for (int j = 0; j < kN / 8; ++j) {
        float2 of_x;
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(of_x.x), "=f"(of_x.y)
                     : "r"(of_thread + static_cast<std::uint32_t>(j * 32)));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          sum[4 * j + 2 * half] += part[4 * j + 2 * half] * (of_x.x * now[half]);
          sum[4 * j + 2 * half + 1] += part[4 * j + 2 * half + 1] * (of_x.y * now[half]);
        }
      }
      if (++slot == p.stages) slot = 0, ++turn;
    }
  }
#endif
};

}  // namespace tessera::cuda::quantised
