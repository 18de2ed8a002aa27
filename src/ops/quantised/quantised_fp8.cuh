// quantised_linear of up to 128 rows rounded to E4M3 (rounded_rows.cuh) with w in E4M3, on Hopper: the tensor cores
// multiply both as they are, twice as fast as 16-bit numbers (quantised_block.cuh has the rest, and rounded_many.cuh
// more rows).
//
// The tensor cores add with about 14 bits, so each stage's sums are added in float32. Where x has a scale for each 128
// columns, which are a stage, and w one for each block, a stage's sums are multiplied with both on the way; where rows
// have one scale, the last sums are.
//
// The bound is reading w once.
#pragma once

#include "tessera/ops/quantised/quantised_block.cuh"
#include "tessera/ops/quantised/rounded_rows.cuh"

namespace tessera::cuda::quantised {

static_assert(kRoundedGroup == kStageColumns);

// A Product of quantised_block(). x maps the rounded rows.
template <class T, int kN>
struct RoundedProduct {
  using Element = T;
  static constexpr int kWeightRowBytes = kStageColumns;
  using Ring = TileRing<kN, kTileWeights * kWeightRowBytes, 1>;
  __device__ static bool scales(const TiledQuantised<T>& p) { return p.w.num_groups > 1; }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __device__ static void multiply(const TiledQuantised<T>& p, const TilePlace& at, const Ring& ring, int weight,
                                  const int (&w_rows)[2], float (&sum)[kN / 2], float (&factor)[2]) {
    const bool by_stage = scales(p);
    const float* const w_scales = reinterpret_cast<const float*>(p.w.scales);
    const float* of_rows[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      of_rows[half] = w_scales + w_rows[half] / static_cast<int>(p.w.format.group_rows) * p.w.num_groups;
    float w_scale[2] = {of_rows[0][by_stage ? at.first : 0], of_rows[1][by_stage ? at.first : 0]};
#pragma unroll
    for (float& total : sum) total = 0;
    const std::uint32_t first = static_cast<std::uint32_t>(weight / 64 * 64) * kBoxRowBytes;  // of the warpgroup
    for (int s = 0, slot = 0, turn = 0; s < at.count; ++s) {
      ring.full[slot].wait(turn & 1);
      float part[kN / 2];
      const std::uint64_t a = matrix_at(ring.weights(slot) + first);
      const std::uint64_t b = matrix_at(ring.rows(slot));
      begin_products();
#pragma unroll
      for (int d = 0; d < kStageColumns / 32; ++d) multiply_e4m3<kN>(part, a + d * kMatrixStep, b + d * kMatrixStep, d);
      end_products();
      const float now[2] = {w_scale[0], w_scale[1]};
      if (by_stage && s + 1 < at.count) {
#pragma unroll
        for (int half = 0; half < 2; ++half) w_scale[half] = of_rows[half][at.first + s + 1];
      }
      wait_for_products<0>();
      hold(part);
      if (by_stage) {
        const std::uint32_t x_scales = ring.scales(slot) + threadIdx.x % 4 * 8;
#pragma unroll
        for (int j = 0; j < kN / 8; ++j) {
          float2 of_x;
          asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                       : "=f"(of_x.x), "=f"(of_x.y)
                       : "r"(x_scales + static_cast<std::uint32_t>(j * 32)));
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            sum[4 * j + 2 * half] += part[4 * j + 2 * half] * (of_x.x * now[half]);
            sum[4 * j + 2 * half + 1] += part[4 * j + 2 * half + 1] * (of_x.y * now[half]);
          }
        }
      } else {
#pragma unroll
        for (int i = 0; i < kN / 2; ++i) sum[i] += part[i];
      }
      __syncwarp();
      ring.release(slot, p.shared);
      if (++slot == p.stages) slot = 0, ++turn;
    }
    factor[0] = by_stage ? 1.0F : w_scale[0];
    factor[1] = by_stage ? 1.0F : w_scale[1];
    if (!by_stage) {
#pragma unroll
      for (int j = 0; j < kN / 8; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float of_x = p.x_scales[at.first_row + j * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i];
          sum[4 * j + i] *= of_x;
          sum[4 * j + 2 + i] *= of_x;
        }
    }
  }
#endif
};

}  // namespace tessera::cuda::quantised
