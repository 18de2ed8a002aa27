// quantised_linear of any number of rows on Hopper, without rounding x. Warpgroups convert w to bfloat16 or float16 in
// registers, from where a wgmma instruction can take its first matrix. quantised_block.cuh has the rest of the kernel.
//
// If columns within a stage share a scale as a group, the scale is multiplied with the values and the group's offset is
// added. This rounds the weights to T once; NVFP4's weights stay exact. If a whole row has one scale, it is multiplied
// with the sums, in float32.
//
// With few rows the time is bounded by reading w once. Converting takes about three instructions a value, and a
// multiprocessor issues them for 40 values a cycle. If memory delivers w at full speed, converting takes less than half
// of the issue slots for 8-bit values, and nearly all of them for 4-bit values. With many rows the products of a stage
// last 1024 cycles, and converting takes half of them.
#pragma once

#include "tessera/ops/quantised/quantised_block.cuh"

namespace tessera::cuda::quantised {

inline constexpr int kStageSteps = kStageColumns / 16;

inline constexpr int stage_row_bytes(Values values) { return is_packed(values) ? kStageColumns / 2 : kStageColumns; }

// Returns the place of a byte of a stage's weights in shared memory. The copy engine (TMA) permutes the 16-byte chunks
// of a row of kRowBytes by the number of the 128-byte line.
template <int kRowBytes>
__device__ inline std::uint32_t swizzled(int byte) {
  return static_cast<std::uint32_t>(byte ^ (byte >> 7 & (kRowBytes / 16 - 1)) << 4);
}
__device__ inline std::uint32_t load_shared_u16(std::uint32_t address) {
  std::uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address));
  return v;
}
__device__ inline std::uint32_t load_shared_u8(std::uint32_t address) {
  std::uint32_t v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(address));
  return v;
}

// The number of scales that a row of w has in a stage, and their form. kStored is e4m3 for values of e2m1 and float32
// for values of other types, kHalves is float16, and kPairs is float16 with offsets. A count of 0 means that scales are
// applied to sums.
enum class ScaleForm { kStored, kHalves, kPairs };
struct StageGroups {
  int count = 0;
  ScaleForm form = ScaleForm::kStored;
};

// Loads aligned words, two or a multiple of four, with the widest instructions.
template <int kWords>
__device__ inline void load_words(const std::byte* from, std::uint32_t (&to)[kWords]) {
  if constexpr (kWords == 2) {
    const uint2 two = *reinterpret_cast<const uint2*>(from);
    to[0] = two.x, to[1] = two.y;
  } else {
    static_assert(kWords % 4 == 0);
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      const uint4 four = reinterpret_cast<const uint4*>(from)[i / 4];
      to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    }
  }
}

// The scales and zeros of one row of w in a stage, in the form that they have in memory. They are loaded a stage ahead.
template <Values kValues, StageGroups kGroups>
struct LoadedScales {
  static constexpr int kCount = kGroups.count == 0 ? 1 : kGroups.count;
  static constexpr int kWords = kGroups.form == ScaleForm::kHalves ? kCount / 2
                                : kValues == Values::kE2M1         ? kCount / 4
                                                                   : kCount;
  std::uint32_t scales[kWords];
  std::uint32_t zeros[kValues == Values::kInt4 ? kCount : 1];

  // Loads the scales and zeros of a stage. `scale_row` and `zero_row` are where the row's scales and zeros begin.
  __device__ void load(const QuantisedMatrix& w, int scale_row, int zero_row, int stage, int group_shift) {
    if constexpr (kGroups.form != ScaleForm::kStored) {
      constexpr int kBytes = kGroups.form == ScaleForm::kHalves ? 2 : 4;
      load_words(w.scales + static_cast<std::int64_t>(scale_row + stage * kCount) * kBytes, scales);
    } else if constexpr (kValues == Values::kE2M1) {
      load_words(w.scales + scale_row + stage * kCount, scales);
    } else if constexpr (kGroups.count > 0) {
      const int last = static_cast<int>(w.num_groups) - 1;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int group = min(last, stage * kStageColumns + i * (kStageColumns / kCount) >> group_shift);
        scales[i] = reinterpret_cast<const std::uint32_t*>(w.scales)[scale_row + group];
        if constexpr (kValues == Values::kInt4) zeros[i] = w.zeros == nullptr ? 8 : w.zeros[zero_row + group];
      }
    }
  }
};

// The scales and zeros in the form that the conversion of values needs, in both halves of registers.
template <class T, Values kValues, StageGroups kGroups>
struct StageScales {
  using Loaded = LoadedScales<kValues, kGroups>;
  static constexpr bool kPairs = kGroups.form == ScaleForm::kPairs;
  static constexpr bool kZeros = kValues == Values::kInt4 && kGroups.form == ScaleForm::kStored;
  static constexpr bool kSmall = !kZeros && kSmallInts<T, kValues>;
  std::uint32_t scales[Loaded::kCount];
  std::uint32_t offsets[kZeros ? Loaded::kCount : 1];          // the numbers that exact() subtracts
  std::uint32_t added[kPairs || kSmall ? Loaded::kCount : 1];  // the numbers that scaled_and_moved() adds

  __device__ explicit StageScales(const Loaded& loaded) {
    if constexpr (!kZeros) offsets[0] = offset_of<T, kValues>(kValues == Values::kInt4 && !kPairs ? 8 : 0);
#pragma unroll
    for (int i = 0; i < Loaded::kCount; ++i) {
      if constexpr (kZeros) offsets[i] = offset_of<T, kValues>(static_cast<int>(loaded.zeros[i]));
      if constexpr (kGroups.form != ScaleForm::kStored) {
        const std::uint32_t word = loaded.scales[kPairs ? i : i / 2];
        const float2 two = __half22float2(reinterpret_cast<const __half2&>(word));
        using Both = ScaleAndOffset<T, kValues>;
        const Both both = kPairs ? Both::of_pair(two.x, two.y) : Both::of_scale(i % 2 == 0 ? two.x : two.y);
        put(i, both);
      } else if constexpr (kValues == Values::kE2M1) {
        scales[i] = value_scale<T, kValues>(
            number_of_e4m3(static_cast<std::uint8_t>(loaded.scales[i / 4] >> (i % 4 * 8) & 255u)));
      } else if constexpr (kGroups.count > 0) {
        scales[i] = value_scale<T, kValues>(__uint_as_float(loaded.scales[i]));
      }
    }
  }

  // Returns the values of a converted pair in a step of 16 columns, scaled unless scales are applied to sums.
  __device__ std::uint32_t values_of(std::uint32_t pair, int step) const {
    const std::uint32_t offset = offsets[kZeros ? step * Loaded::kCount / kStageSteps : 0];
    const int group = step * Loaded::kCount / kStageSteps;
    if constexpr (kPairs || kSmall) return scaled_and_moved<T, kValues>(pair, offset, scales[group], added[group]);
    if constexpr (kGroups.count > 0) return scaled<T, kValues>(pair, offset, scales[group]);
    return exact<T, kValues>(pair, offset);
  }

 private:
  __device__ void put(int i, const ScaleAndOffset<T, kValues>& both) {
    scales[i] = both.scale;
    if constexpr (kPairs || kSmall) added[i] = both.added;
  }
};

// A thread's part of a stage of weights, in the form that multiply_held() takes: steps of 16 columns.
using HeldStage = std::uint32_t[kStageSteps][4];

// Converts rows `row` and `row` + 8 of a stage at `weights` in shared memory.
template <class T, Values kValues, StageGroups kGroups>
__device__ inline void convert_stage(std::uint32_t weights, int row,
                                     const StageScales<T, kValues, kGroups> (&scales)[2], HeldStage& to) {
  constexpr int kRowBytes = stage_row_bytes(kValues);
  const int quad = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int step = 0; step < kStageSteps; ++step)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // A thread has the columns 2 q, 2 q + 1, 2 q + 8 and 2 q + 9 of a step; q is its number in the quad.
      std::uint32_t pairs[2];
      const int first = (row + half * 8) * kRowBytes + step * (kRowBytes / kStageSteps);
      if constexpr (is_packed(kValues)) {
        const std::uint32_t at = weights + swizzled<kRowBytes>(first) + static_cast<std::uint32_t>(quad);
        const auto convert = [](std::uint32_t byte) {
          return StageScales<T, kValues, kGroups>::kSmall ? convert_small_byte(byte) : convert_byte<T, kValues>(byte);
        };
        pairs[0] = convert(load_shared_u8(at));
        pairs[1] = convert(load_shared_u8(at + 4));
      } else {
        const std::uint32_t at = weights + swizzled<kRowBytes>(first) + static_cast<std::uint32_t>(quad) * 2;
        convert_bytes<T, kValues>(load_shared_u16(at) | load_shared_u16(at + 8) << 16, pairs);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) to[step][2 * i + half] = scales[half].values_of(pairs[i], step);
    }
}

// Multiplies converted weights: a Product of quantised_block().
template <class T, Values kValues, StageGroups kGroups, int kN>
struct ConvertedProduct {
  using Element = T;
  static constexpr int kWeightRowBytes = stage_row_bytes(kValues);
  static constexpr bool kScaled = false;
  using Ring = TileRing<kN, kTileWeights * kWeightRowBytes, 2>;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __device__ static void multiply(const TiledQuantised<T>& p, const TilePlace& at, const Ring& ring, int weight,
                                  const int (&w_rows)[2], float (&sum)[kN / 2], float (&factor)[2]) {
    const auto groups = static_cast<int>(p.w.num_groups);
    const int scale_rows[2] = {w_rows[0] / static_cast<int>(p.w.format.group_rows) * groups,
                               w_rows[1] / static_cast<int>(p.w.format.group_rows) * groups};
    LoadedScales<kValues, kGroups> next[2];
    const auto load_scales = [&](int stage) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        next[half].load(p.w, scale_rows[half], w_rows[half] * groups, stage, p.group_shift);
    };
    load_scales(at.first);
    for (int s = 0, slot = 0, turn = 0; s < at.count; ++s) {
      ring.full[slot].wait(turn & 1);
      HeldStage held;
      {
        const StageScales<T, kValues, kGroups> now[2] = {StageScales<T, kValues, kGroups>(next[0]),
                                                         StageScales<T, kValues, kGroups>(next[1])};
        if (s + 1 < at.count) load_scales(at.first + s + 1);
        convert_stage<T, kValues, kGroups>(ring.weights(slot), weight, now, held);
      }
      begin_products();
#pragma unroll
      for (int d = 0; d < kStageSteps; ++d) {
        const std::uint64_t b =
            matrix_at(ring.rows(slot) + static_cast<std::uint32_t>(d / 4 * Ring::kBoxBytes)) + d % 4 * kMatrixStep;
        multiply_held<T, kN>(sum, held[d], b, s + d);
      }
      end_products();
      // The compiler lets no product run while the registers of another product are written (ptxas C7513). So while
      // this warpgroup converts, only the other warpgroup keeps the tensor cores busy.
      wait_for_products<0>();
      ring.release(slot, p.shared);
      if (++slot == p.stages) slot = 0, ++turn;
    }
    hold(sum);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[half] = p.w.factor == nullptr ? 1.0F : p.w.factor[w_rows[half]];
      if constexpr (kGroups.count == 0) {
        factor[half] *= scale_of(p.w, scale_rows[half]);
      } else {
        factor[half] *= StageScales<T, kValues, kGroups>::kSmall ? kSmallSumGrow : kSumGrow<T, kValues>;
      }
    }
  }
#endif
};

}  // namespace tessera::cuda::quantised
