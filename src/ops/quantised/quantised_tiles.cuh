// Computes quantised_linear on Hopper for any number of rows of x, without rounding x. Warpgroups convert w to bfloat16
// or float16 in registers, because a wgmma instruction can take its A operand from registers. quantised_block.cuh has
// the rest of the kernel.
//
// If the scales belong to groups of columns, each value is multiplied by the scale of its group, and the group's offset
// is added. The result is rounded to T once. NVFP4's weights stay exact. If a whole row of 8-bit values has one scale,
// the sums are multiplied by it, in float32.
//
// With few rows the time is bounded by reading w once. Converting takes about three instructions per value, and a
// multiprocessor issues them for 40 values per cycle. If memory delivers w at full speed, converting takes less than
// half of the issue slots for 8-bit values, and nearly all of them for 4-bit values. With many rows the products of a
// stage last 1024 cycles, and converting takes half of this time.
#pragma once

#include "tessera/ops/quantised/quantised_block.cuh"

namespace tessera::cuda::quantised {

// Returns the offset of chunk 0 of a row. The copy engine (TMA) swizzles the 16-byte chunks of a row of kRowBytes:
// chunk c lies at place c ^ l of the row, where l is the number of the row's 128-byte line modulo the number of chunks
// in a row. Chunk 0 therefore lies at place l, and chunk c lies at the offset (result ^ 16 c). Each chunk of the row
// `row` + 8 lies 8 kRowBytes bytes after the same chunk of this row.
template <int kRowBytes>
__device__ inline std::uint32_t first_chunk(int row) {
  const int byte = row * kRowBytes;
  return static_cast<std::uint32_t>(byte | (byte >> 7 & (kRowBytes / 16 - 1)) << 4);
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

// ScaleForm is the type of the scales. kStored is e4m3 if the values are e2m1, and float32 for all other values.
// kHalves is float16. kPairs is a float16 scale with a float16 offset. StageGroups says how many scales a row of w has
// in a stage, which form they have, and how many columns the stage has. A count of 0 means that scales are applied to
// sums.
enum class ScaleForm { kStored, kHalves, kPairs };
struct StageGroups {
  int count = 0;
  ScaleForm form = ScaleForm::kStored;
  int columns = kMostStageColumns;

  constexpr int steps() const { return columns / 16; }
  constexpr int row_bytes(Values values) const { return is_packed(values) ? columns / 2 : columns; }
  // Returns the StageGroups of a stage that has half the columns.
  constexpr StageGroups half() const { return {count > 1 ? count / 2 : count, form, columns / 2}; }
};

// Loads aligned words with the widest instructions. kWords is one, two or a multiple of four.
template <int kWords>
__device__ inline void load_words(const std::byte* from, std::uint32_t (&to)[kWords]) {
  if constexpr (kWords == 1) {
    to[0] = *reinterpret_cast<const std::uint32_t*>(from);
  } else if constexpr (kWords == 2) {
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

// The scales and zero points of one row of w, as they are stored in memory. They belong to kStages neighbouring stages.
template <class T, Values kValues, StageGroups kGroups>
struct LoadedScales {
  static constexpr int kCount = kGroups.count == 0 ? 1 : kGroups.count;
  static constexpr bool kFloats = kGroups.form == ScaleForm::kStored && kValues != Values::kE2M1 && kGroups.count > 0;
  static constexpr bool kZeros = kFloats && kValues == Values::kInt4;
  // If a stage has one scale, one load reads the scales of four stages, because it is as fast as a load of one scale.
  static constexpr int kStages = kFloats && kCount == 1 ? 4 : 1;
  static constexpr int kWords = kGroups.form == ScaleForm::kHalves ? kCount / 2
                                : kValues == Values::kE2M1         ? kCount / 4
                                                                   : kCount * kStages;
  std::uint32_t scales[kWords];
  std::uint32_t zeros;  // zero points, one byte for each scale

  // Loads the scales and zero points of kStages stages. The first of them is `stage`, a multiple of kStages.
  // `scale_row` and `zero_row` are the indices of the row's first scale and first zero point.
  __device__ void load(const TiledQuantised<T>& p, int scale_row, int zero_row, int stage) {
    const QuantisedMatrix& w = p.w;
    if constexpr (kGroups.form != ScaleForm::kStored) {
      constexpr int kBytes = kGroups.form == ScaleForm::kHalves ? 2 : 4;
      load_words(w.scales + static_cast<std::int64_t>(scale_row + stage * kCount) * kBytes, scales);
    } else if constexpr (kValues == Values::kE2M1) {
      load_words(w.scales + scale_row + stage * kCount, scales);
    } else if constexpr (kFloats) {
      constexpr int kColumns = kGroups.columns / kCount;
      const int last = static_cast<int>(w.num_groups) - 1;
      if (p.scales_aligned && w.format.group_cols == kColumns) {
        const int first = stage * kCount;
        load_words(w.scales + static_cast<std::int64_t>(scale_row + first) * 4, scales);
        if (kZeros && w.zeros != nullptr) zeros = *reinterpret_cast<const std::uint32_t*>(w.zeros + zero_row + first);
      } else {
        zeros = 0;
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
          const int group = min(last, stage * kGroups.columns + i * kColumns >> p.group_shift);
          scales[i] = reinterpret_cast<const std::uint32_t*>(w.scales)[scale_row + group];
          if (kZeros && w.zeros != nullptr) zeros |= static_cast<std::uint32_t>(w.zeros[zero_row + group]) << (8 * i);
        }
      }
      if (kZeros && w.zeros == nullptr) zeros = 0x08080808u;
    }
  }
  // Moves to the next of the kStages stages.
  __device__ void advance() {
    if constexpr (kStages > 1) {
#pragma unroll
      for (int i = 0; i + 1 < kWords; ++i) scales[i] = scales[i + 1];
      zeros >>= 8;
    }
  }
};

// The scales and offsets of one stage, ready for the arithmetic on pairs of values. Each number is in both halves of a
// register.
template <class T, Values kValues, StageGroups kGroups>
struct StageScales {
  using Loaded = LoadedScales<T, kValues, kGroups>;
  static constexpr bool kPairs = kGroups.form == ScaleForm::kPairs;
  static constexpr bool kZeros = Loaded::kZeros;
  static constexpr bool kSmall = kGroups.form != ScaleForm::kStored && kSmallInts<T, kValues>;
  std::uint32_t scales[Loaded::kCount];
  std::uint32_t offsets[kZeros ? Loaded::kCount : 1];          // the numbers that exact() subtracts
  std::uint32_t added[kPairs || kSmall ? Loaded::kCount : 1];  // the numbers that scaled_and_moved() adds

  __device__ explicit StageScales(const Loaded& loaded) {
    if constexpr (!kZeros) offsets[0] = offset_of<T, kValues>(kValues == Values::kInt4 && !kPairs ? 8 : 0);
#pragma unroll
    for (int i = 0; i < Loaded::kCount; ++i) {
      if constexpr (kZeros) offsets[i] = offset_of<T, kValues>(static_cast<int>(loaded.zeros >> (8 * i) & 255u));
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

  // Returns the values of a converted pair in a step of 16 columns. The values are not scaled if scales are applied to
  // sums.
  __device__ std::uint32_t values_of(std::uint32_t pair, int step) const {
    const int group = step * Loaded::kCount / kGroups.steps();
    const std::uint32_t offset = offsets[kZeros ? group : 0];
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

// Converts a thread's values of one step of 16 columns, for two rows of w that are eight rows apart. `start` is the
// shared-memory address of the thread's first value in the stage.
template <class T, Values kValues, StageGroups kGroups>
__device__ inline void convert_step(std::uint32_t start, int step, const StageScales<T, kValues, kGroups> (&scales)[2],
                                    std::uint32_t (&to)[4]) {
  constexpr int kRowBytes = kGroups.row_bytes(kValues);
  constexpr int kStepBytes = kRowBytes / kGroups.steps();
  constexpr bool kSmall = StageScales<T, kValues, kGroups>::kSmall;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    // A thread has the columns 2 q, 2 q + 1, 2 q + 8 and 2 q + 9 of a step, where q is the thread's number in its quad.
    std::uint32_t pairs[2];
    const std::uint32_t chunk = start ^ static_cast<std::uint32_t>(step * kStepBytes / 16 * 16);
    const std::uint32_t at = chunk + static_cast<std::uint32_t>(step * kStepBytes % 16 + half * 8 * kRowBytes);
    if constexpr (is_packed(kValues)) {
      const auto convert = [](std::uint32_t byte) {
        return kSmall ? convert_small_byte(byte) : convert_byte<T, kValues>(byte);
      };
      pairs[0] = convert(load_shared_u8(at));
      pairs[1] = convert(load_shared_u8(at + 4));
    } else if constexpr (kIsBf16<T>) {
      const std::uint32_t word = __byte_perm(load_shared_u16(at), load_shared_u16(at + 8), 0x5140);
      if constexpr (kSmall) {
        convert_small_bytes_apart(word, StageScales<T, kValues, kGroups>::kPairs ? 0 : kFlipSigns, pairs);
      } else {
        convert_bytes_apart<kValues>(word, pairs);
      }
    } else {
      convert_bytes<T, kValues>(load_shared_u16(at) | load_shared_u16(at + 8) << 16, pairs);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) to[2 * i + half] = scales[half].values_of(pairs[i], step);
  }
}

// The scales of a thread's two rows of w. The thread loads them ahead of the stages that need them.
template <class T, Values kValues, StageGroups kGroups>
class ScaleStream {
 public:
  using Loaded = LoadedScales<T, kValues, kGroups>;
  struct Pair {
    StageScales<T, kValues, kGroups> rows[2];
  };

  // `scale_rows` are the indices of the rows' first scales.
  __device__ ScaleStream(const TiledQuantised<T>& p, const TilePlace& at, const int (&w_rows)[2],
                         const int (&scale_rows)[2])
      : p_(p), w_rows_(w_rows), scale_rows_(scale_rows), first_(at.first), end_(at.first + at.count) {
    load(first_ / Loaded::kStages * Loaded::kStages);
  }

  // Returns the scales of a stage. Call take() once for every stage of the block, in order.
  __device__ Pair take(int stage) {
    const int of_load = stage % Loaded::kStages;
    if (stage > first_ && of_load > 0) {
      now_[0].advance(), now_[1].advance();
    } else {
      now_[0] = next_[0], now_[1] = next_[1];
      for (int i = 0; i < of_load; ++i) now_[0].advance(), now_[1].advance();
      const int later = stage - of_load + Loaded::kStages;
      if (later < end_) load(later);
    }
    return {{StageScales<T, kValues, kGroups>(now_[0]), StageScales<T, kValues, kGroups>(now_[1])}};
  }

 private:
  __device__ void load(int stage) {
    const auto groups = static_cast<int>(p_.w.num_groups);
#pragma unroll
    for (int half = 0; half < 2; ++half) next_[half].load(p_, scale_rows_[half], w_rows_[half] * groups, stage);
  }

  const TiledQuantised<T>& p_;
  const int (&w_rows_)[2];
  const int (&scale_rows_)[2];
  int first_;
  int end_;
  Loaded now_[2];
  Loaded next_[2];
};

// The Product (quantised_block.cuh) that multiplies converted weights.
template <class T, Values kValues, StageGroups kGroups, int kN>
struct ConvertedProduct : UsualSums {
  using Element = T;
  static constexpr int kColumns = kGroups.columns;
  static constexpr int kWeightRowBytes = kGroups.row_bytes(kValues);
  static constexpr bool kRounds = false;
  static constexpr bool kLimitsBoxes = false;  // a limit of boxes in flight does not make it faster
  using Ring = TileRing<kN, kTileWeights * kWeightRowBytes, kColumns * 2 / kBoxRowBytes>;
  static constexpr int kSteps = kGroups.steps();
  // With many rows a step is converted while the product of the step before it runs. With few rows products are so
  // short that it is faster to convert a whole stage before its first product.
  static constexpr bool kInterleaved = kN > 128;
  // The number of stages in a batch. In a batch, a stage is converted while the products of the stage before it run.
  // Each stage of a batch needs registers of its own for its converted weights.
  static constexpr int kBatch = kN > 64 ? 16 / kSteps : 1;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __device__ static void multiply(const TiledQuantised<T>& p, const TilePlace& at, const Ring& ring, int weight,
                                  const int (&w_rows)[2], RingPlace& place, float (&sum)[kN / 2], float (&factor)[2]) {
    const auto groups = static_cast<int>(p.w.num_groups);
    const int scale_rows[2] = {w_rows[0] / static_cast<int>(p.w.format.group_rows) * groups,
                               w_rows[1] / static_cast<int>(p.w.format.group_rows) * groups};
    Stages stages{ring,     {p, at, w_rows, scale_rows},
                  p.stages, p.shared,
                  place,    first_chunk<kWeightRowBytes>(weight) + threadIdx.x % 4 * (is_packed(kValues) ? 1 : 2)};
#pragma unroll
    for (float& total : sum) total = 0;
    const int end = at.first + at.count;
    int stage = at.first;
    for (; stage + kBatch <= end; stage += kBatch) stages.template multiply<kBatch>(stage, sum);
    if constexpr (kBatch > 1)
      for (; stage < end; ++stage) stages.template multiply<1>(stage, sum);
    hold(sum);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[half] = p.w.factor == nullptr ? 1.0F : p.w.factor[w_rows[half]];
      if constexpr (kGroups.count == 0) {
        factor[half] *= scale_of(p.w, scale_rows[half]);
      } else {
        factor[half] *= StageScales<T, kValues, kGroups>::kSmall ? kSmallSumGrow<kValues> : kSumGrow<T, kValues>;
      }
    }
  }

 private:
  // A thread's position in the block's stages.
  struct Stages {
    const Ring& ring;
    ScaleStream<T, kValues, kGroups> scales;
    int slots;
    bool shared;
    RingPlace& place;
    std::uint32_t start;  // offset, in a stage, of the thread's first value; the second value follows it

    // Adds the products of kCount stages from `stage` on, and waits for all of them. Without the wait, the next
    // iteration of a loop would write registers that running products use, and ptxas would serialise the products (its
    // message C7513).
    template <int kCount>
    __device__ void multiply(int stage, float (&sum)[kN / 2]) {
      std::uint32_t held[kCount][kSteps][4];  // the weights in the form that multiply_held() takes
      int last = 0;                           // the slot of the previous stage
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int slot = place.slot;
        ring.weights_full[slot].wait(place.turn & 1);
        const auto of_stage = scales.take(stage + i);
        const auto convert = [&](int step) {
          convert_step<T, kValues, kGroups>(ring.weights(slot) + start, step, of_stage.rows, held[i][step]);
        };
        if constexpr (!kInterleaved) {
#pragma unroll
          for (int step = 0; step < kSteps; ++step) convert(step);
          begin_products();
        }
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          if constexpr (kInterleaved) {
            convert(step);
            begin_products();
          }
          const std::uint64_t b = matrix_at(ring.rows(slot) + static_cast<std::uint32_t>(step / 4 * Ring::kBoxBytes)) +
                                  step % 4 * kMatrixStep;
          multiply_held<T, kN>(sum, held[i][step], b, 1);
          if constexpr (kInterleaved) {
            end_products();
            if (i > 0 && step == 1) {
              wait_for_products<2>();
              ring.release(last, shared);
            }
          }
        }
        if constexpr (!kInterleaved) {
          end_products();
          if (i > 0) {
            wait_for_products<1>();
            ring.release(last, shared);
          }
        }
        last = slot;
        place.advance(slots);
      }
      wait_for_products<0>();
      ring.release(last, shared);
    }
  };
#endif
};

}  // namespace tessera::cuda::quantised
