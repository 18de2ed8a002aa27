// Computes quantised_linear on Hopper for rows of x that are rounded to E4M3 (rounded_rows.cuh), with w in E4M3. The
// kernel is used for up to 64 rows. For more rows, rounded_wide.cuh and rounded_many.cuh are used, or this kernel if
// they do not support w. The tensor cores multiply E4M3 numbers. quantised_block.cuh has the rest of the kernel. Tensor
// cores keep only about 14 bits when they add. The sums of each stage, which are the sums of one group of 128 columns,
// are therefore multiplied by the group's scales and added up in float32.
//
// The time is bounded by reading w once. If x has up to eight rows, warps of each block round it (rounding_warps.cuh).
// If x has more rows, a kernel before this one rounds it. If instead each block rounded x, the product would take 1.6
// times as long with 64 rows, and 2 to 3 times as long with 128 (measured on an H100).
#pragma once

#include "tessera/ops/cuda/rounded_rows.cuh"
#include "tessera/ops/quantised/quantised_block.cuh"

namespace tessera::cuda::quantised {

static_assert(kRoundedGroup == kMostStageColumns);

// The Product (quantised_block.cuh) that multiplies rounded rows. If kRounds_ is true, warps of the block round x.
template <class T, int kN, bool kRounds_ = false>
struct RoundedProduct : UsualSums {
  using Element = T;
  static constexpr int kColumns = kMostStageColumns;
  static constexpr int kWeightRowBytes = kColumns;
  static constexpr bool kRounds = kRounds_;
  static constexpr bool kLimitsBoxes = true;
  using Ring = TileRing<kN, kTileWeights * kWeightRowBytes, 1, 1, sizeof(float)>;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __device__ static void multiply(const TiledQuantised<T>& p, const TilePlace& at, const Ring& ring, int weight,
                                  const int (&w_rows)[2], RingPlace& place, float (&sum)[kN / 2], float (&factor)[2]) {
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
    const std::uint32_t of_warpgroup = static_cast<std::uint32_t>(weight / 64 * 64) * kBoxRowBytes;
    for (int s = 0; s < at.count; ++s) {
      const int slot = place.slot;
      ring.weights_full[slot].wait(place.turn & 1);
      ring.rows_full[slot].wait(place.turn & 1);
      float part[kN / 2];
      const std::uint64_t a = matrix_at(ring.weights(slot) + of_warpgroup);
      const std::uint64_t b = matrix_at(ring.rows(slot));
      begin_products();
#pragma unroll
      for (int d = 0; d < kColumns / 32; ++d) multiply_e4m3<kN>(part, a + d * kMatrixStep, b + d * kMatrixStep, d);
      end_products();
      const float now[2] = {by_stage ? w_scale[0] : 1.0F, by_stage ? w_scale[1] : 1.0F};
      if (by_stage && s + 1 < at.count) {
#pragma unroll
        for (int half = 0; half < 2; ++half) w_scale[half] = of_rows[half][at.first + s + 1];
      }
      wait_for_products<0>();
      hold(part);
      const std::uint32_t of_thread = ring.scales(slot) + threadIdx.x % 4 * 8;
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
      hold(sum);  // keeps the loads of the scales before the release of the slot
      __syncwarp();
      ring.release(slot, p.shared);
      place.advance(p.stages);
    }
  }
#endif
};

}  // namespace tessera::cuda::quantised
