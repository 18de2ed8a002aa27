// Computes quantised_linear for very few rows on Hopper, alone or together with the gate after it (silu_mul or
// gelu_mul). The time to read w from memory bounds the kernel.
//
// The kernel keeps x in shared memory beside the ring, so that all tiles read x from there. This needs a small x. The
// kernel differs from quantised_streamed.cuh in three more ways, which save time:
//   - The copy engine (TMA) brings a stage as one box. Copies of single rows arrive too slowly: with rows of 512 bytes,
//     an H200 reads at 2.8 instead of 3.4 TB/s.
//   - Columns of x are arranged once (streamed_columns.cuh), so that a conversion of w needs fewer instructions. Int4's
//     zeros are not subtracted from w. A sum is therefore too large by the zero times the sum of x, and is corrected at
//     the end.
//   - A separate warp adds the sums of a tile, while the other warps go on with the next tile.
// The order of sums depends neither on the number of rows nor on the tile. streamed_tile.cuh says where scales are
// applied.
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/bulk_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"
#include "tessera/ops/quantised/streamed_columns.cuh"
#include "tessera/ops/quantised/streamed_tile.cuh"

namespace tessera::cuda::quantised {

inline constexpr int kStagedThreads = (kStreamWarps + 2) * 32;  // eight warps multiply, one copies, and one adds
inline constexpr int kChunkBytes = 128;  // bytes of a row of w that one warp multiplies in a stage
inline constexpr int kStagedBytes = kStreamWarps * kChunkBytes;  // number of bytes of a row of w in a stage
inline constexpr int kStagedSlot = kTileRows * kStagedBytes;
inline constexpr int kPaddedRows = 8 + 2;  // number of floats for the sums of eight rows of x, padded

// Returns which of eight rows of w a lane reads. Lanes 0 to 3 read row 0, lanes 4 to 7 row 4, lanes 8 to 11 row 1, and
// so on. The box is swizzled, so the eight threads that read together have no bank conflicts.
__device__ inline int row_of_lane(int lane) { return lane / 8 + lane / 4 % 2 * 4; }

// Computes y, tile by tile. A block processes every gridDim.x-th tile. `boxes` is the tensor map of w's values that
// boxes_of() makes (quantised_staged.cu). Shared memory has the slots of the ring, two slots of scales, and x.
template <class T, Values kValues, ScaleOf kScaleOf>
__global__ void __launch_bounds__(kStagedThreads, 2)
    quantised_staged(const __grid_constant__ CUtensorMap boxes, const StreamedQuantised<T> p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int kPerByte = is_packed(kValues) ? 2 : 1;
  constexpr int kLoads = column_loads(kValues);
  // If true, the kernel subtracts the zero points of int4, and the number that the conversion adds (kOffset), from the
  // sums and not from the values.
  constexpr bool kSumsOfX = kValues == Values::kInt4 && kScaleOf == ScaleOf::kSums;
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ SharedBarrier full[kMostRingSlots], empty[kMostRingSlots], scales_full[2], scales_empty[2];
  __shared__ SharedBarrier sums_full[2], sums_empty[2];
  __shared__ float sums[2][kStreamWarps][kTileRows][kPaddedRows];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int tiles = p.n / p.tile_columns();
  const int chunks = p.row_bytes / kChunkBytes;                   // number of chunks in a row
  const int stages = (chunks + kStreamWarps - 1) / kStreamWarps;  // number of stages of a tile
  const int step = static_cast<int>(gridDim.x);
  if (threadIdx.x == kStreamWarps * kWarp) {
    for (int s = 0; s < p.slots; ++s) {
      full[s].init(1);
      empty[s].init(kStreamWarps);
    }
    for (int s = 0; s < 2; ++s) {
      scales_full[s].init(1);
      scales_empty[s].init(kStreamWarps);
      sums_full[s].init(kStreamWarps);
      sums_empty[s].init(1);
    }
    SharedBarrier::make_visible();
  }
  let_next_begin();
  __syncthreads();

  unsigned char* const tile_scales = shared + p.slots * kStagedSlot;
  const StagedColumns staged(tile_scales + 2 * p.scales.slot, p.m, static_cast<int>(p.w.cols));
  int buffer = 0;  // which of the two buffers the tile's scales and sums use
  std::uint32_t pass = 0;
  const auto next_tile = [&] {
    buffer ^= 1;
    if (buffer == 0) ++pass;
  };
  int slot = 0;
  std::uint32_t turn = 0;
  const auto advance = [&] {
    if (++slot == p.slots) {
      slot = 0;
      ++turn;
    }
  };
  if (warp == kStreamWarps) {
    if (lane == 0) {
      BoxesInFlight in_flight(full, p.slots, min(p.slots, kBoxesInFlight));
      for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += step, next_tile()) {
        if constexpr (kScaleOf != ScaleOf::kRows) {
          if (pass > 0) scales_empty[buffer].wait((pass - 1) & 1);
          copy_scales(p, tile, tile_scales + buffer * p.scales.slot, scales_full[buffer]);
        }
        for (int i = 0; i < stages; ++i, advance()) {
          if (turn > 0) empty[slot].wait((turn - 1) & 1);
          in_flight.wait_for_one();
          full[slot].arrive_and_expect(kStagedSlot);
          copy_box(shared_address(shared + slot * kStagedSlot), boxes, full[slot], 0, 0, 0, i * kStreamWarps, tile);
        }
      }
    }
    __syncwarp();
    wait_for_previous();
    return;
  }
  wait_for_previous();
  if (warp == kStreamWarps + 1) {
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += step, next_tile()) {
      sums_full[buffer].wait(pass & 1);
      store_tile<kValues, kScaleOf>(p, tile, lane, kWarp, [&](int x_row, int w_row) {
        float t = 0;
#pragma unroll
        for (int w = 0; w < kStreamWarps; ++w) t += sums[buffer][w][w_row][x_row];
        return kShifts<T, kValues> && kScaleOf == ScaleOf::kRows ? t * kShiftedSum : t;
      });
      __syncwarp();
      if (lane == 0) sums_empty[buffer].arrive();
    }
    return;
  }

  const auto width = static_cast<int>(p.w.cols);
  staged.fill<T, kValues>(p.x, p.m, width, static_cast<int>(threadIdx.x), kStreamWarps * kWarp);
  sync_streaming_warps();
  const int unit = lane % 4;
  const int row = row_of_lane(lane);
  const unsigned char* const own =
      staged.columns + min(lane / 4, p.m - 1) * StagedColumns::row_bytes(width) + unit * 16;
  const ScalePlaces places(p, row);
  const bool has_zeros = p.scales.zero_row > 0;
  constexpr int kScaleSize = scale_size(kValues, kScaleOf);
  const bool two = has_two_groups<kValues>(p);
  float sum[4];
  // Adds the products of half of the warp's chunk. The chunk begins at `from`, and a half has kQuadBytes of each row.
  // `quad` is the half's index in a row of w, in units of kQuadBytes bytes.
  const auto add_products = [&](const unsigned char* from, int quad, const unsigned char* of_tile) {
    const unsigned char* const mine = from + row * kChunkBytes + ((quad % 2 * 4 + unit) ^ row) * 16;
    uint4 w[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) w[half] = *reinterpret_cast<const uint4*>(mine + half * 8 * kChunkBytes);
    const int group = (quad * kQuadBytes + unit * 16) * kPerByte >> p.group_shift;
    const auto scales_of = [&](int half) {
      return RowScales<T, kValues, kScaleOf>(of_tile, places.scales[half] + group * kScaleSize, has_zeros,
                                             places.zeros[half] + group, two);
    };
    const RowScales<T, kValues, kScaleOf> scales[2] = {scales_of(0), scales_of(1)};
    const std::uint32_t offsets[2] = {offset_of<T, kValues>(scales[0].zero), offset_of<T, kValues>(scales[1].zero)};
    float partial[4] = {};
    float(&to)[4] = kScaleOf == ScaleOf::kSums ? partial : sum;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint4 b = *reinterpret_cast<const uint4*>(own + (quad * kLoads + i) * 64);
      std::uint32_t a[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto* const words = reinterpret_cast<const std::uint32_t*>(&w[half]);
        if constexpr (is_packed(kValues)) {
          convert_word<T, kValues, kScaleOf>(words[i], a[half]);
        } else {
#pragma unroll
          for (int two = 0; two < 2; ++two) {
            std::uint32_t pairs[2];
            if constexpr (kShifts<T, kValues>) {
              convert_bytes_apart<kValues>(words[2 * i + two], pairs);
            } else {
              convert_word<T, kValues, kScaleOf>(words[2 * i + two], pairs);
            }
            a[half][2 * two] = pairs[0];
            a[half][2 * two + 1] = pairs[1];
          }
        }
#pragma unroll
        for (std::uint32_t& pair : a[half]) {
          if constexpr (!kSumsOfX && !kShifts<T, kValues>) pair = scales[half].values_of(pair, offsets[half], i / 2);
        }
      }
      multiply_tile<T>(to, {a[0][0], a[1][0], a[0][1], a[1][1]}, b.x, b.y);
      multiply_tile<T>(to, {a[0][2], a[1][2], a[0][3], a[1][3]}, b.z, b.w);
    }
    if constexpr (kSumsOfX) {
      const float2 of_x = *reinterpret_cast<const float2*>(staged.sums + quad * 8 + unit * 2);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        partial[i] -= static_cast<float>(scales[i / 2].zero + kOffset<T>) * (i % 2 == 0 ? of_x.x : of_x.y);
    }
    if constexpr (kScaleOf == ScaleOf::kSums) {
      constexpr float kGrow = kShifts<T, kValues> ? kShiftedSum : 1.0F;
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] += partial[i] * (scales[i / 2].sum_scale * kGrow);
    }
  };

  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += step, next_tile()) {
    if constexpr (kScaleOf != ScaleOf::kRows) scales_full[buffer].wait(pass & 1);
    const unsigned char* const of_tile = tile_scales + buffer * p.scales.slot;
#pragma unroll
    for (float& s : sum) s = 0;
    for (int stage = 0; stage < stages; ++stage, advance()) {
      const int chunk = stage * kStreamWarps + warp;
      const unsigned char* const from = shared + slot * kStagedSlot + warp * kTileRows * kChunkBytes;
      full[slot].wait(turn & 1);
      if (chunk < chunks) {
        add_products(from, 2 * chunk, of_tile);
        add_products(from, 2 * chunk + 1, of_tile);
      }
      __syncwarp();
      if (lane == 0) empty[slot].arrive();
    }
    if (pass > 0) sums_empty[buffer].wait((pass - 1) & 1);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2*>(&sums[buffer][warp][half * 8 + row][unit * 2]) =
          make_float2(sum[half * 2], sum[half * 2 + 1]);
    __syncwarp();
    if (lane == 0) {
      sums_full[buffer].arrive();
      if constexpr (kScaleOf != ScaleOf::kRows) scales_empty[buffer].arrive();
    }
  }
#endif
}

}  // namespace tessera::cuda::quantised
