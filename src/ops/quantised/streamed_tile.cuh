// Code that the kernels for few rows of x share (quantised_streamed.cuh, quantised_staged.cuh): their arguments, and
// the scales of a tile.
//
// Scales are applied in one of three places:
//   - to the complete sum of a row of w, when it is stored, if the row has one scale (kRows);
//   - to partial sums, if the columns of w that a quad reads in a round (kQuadBytes bytes) share a scale (kSums): the
//     products with the unscaled values of w are summed in float32, and this sum is multiplied by the scale;
//   - to the values of w, if groups are smaller: a value times its scale is rounded to T. If the format has pairs of a
//     scale and an offset, the offset is added before rounding. For NVFP4 the product is exact. There is separate code
//     for float32 and e4m3 scales (kValues), for float16 scales (kHalves) and for pairs (kPairs).
// In the last two cases the scales and zero points of a tile are contiguous, and the copy engine (TMA) prefetches them,
// because an ordinary load would take longer than a stage.
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/bulk_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/linear/linear_gate.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"

namespace tessera::cuda::quantised {

inline constexpr int kTileRows = 16;    // number of rows of w in a tile
inline constexpr int kStreamWarps = 8;  // number of warps that multiply
inline constexpr int kMostRingSlots = 12;
inline constexpr int kQuadBytes = 64;  // bytes of a row of w that the four threads of a quad read in a round

// Returns the number of columns of w that the four threads of a quad read in a round.
inline constexpr int quad_columns(Values values) { return is_packed(values) ? 2 * kQuadBytes : kQuadBytes; }

enum class ScaleOf { kRows, kSums, kValues, kHalves, kPairs };
inline constexpr bool scales_values(ScaleOf place) { return place >= ScaleOf::kValues; }
inline constexpr bool has_halves(ScaleOf place) { return place >= ScaleOf::kHalves; }
// Returns the distance between the scales of neighbouring groups, in bytes.
inline constexpr int scale_size(Values values, ScaleOf place) {
  return place == ScaleOf::kHalves ? 2 : values == Values::kE2M1 ? 1 : 4;
}

// The scales and zero points of a tile in shared memory.
struct TileScales {
  int scale_bytes;  // bytes of a tile's scales; with a gate, half of them belong to gate rows and half to up rows
  int zero_bytes;   // bytes of a tile's zeros
  int scale_row;    // bytes between the scales of two rows; 0: rows share them
  int zero_row;     // bytes between the zeros of two rows
  int slot;         // bytes of a slot, which holds one tile's scales and zeros; there are two slots
};

// The arguments of the kernels for few rows of x. With a gate, w has n gate rows, then n up rows.
template <class T>
struct StreamedQuantised {
  QuantisedMatrix w;  // [n or 2n, k]
  const T* x;         // [m, k]
  const T* bias;      // [n or 2n]; null: no bias
  const T* residual;  // [m, n]; null: no residual
  T* y;               // [m, n]
  int m;
  int n;
  int row_bytes;    // bytes of a row of w in memory
  int slots;        // number of slots in the ring
  int group_shift;  // column k has the scale k >> group_shift of its row
  int scale_size;   // number of bytes of a scale
  TileScales scales;
  Gate gate;

  __device__ bool is_gated() const { return gate != Gate::kNone; }
  __device__ int tile_columns() const { return is_gated() ? kTileRows / 2 : kTileRows; }  // columns of y in a tile
  __device__ int weight_row(int tile, int row) const {
    const int first = tile * tile_columns();
    return is_gated() && row >= tile_columns() ? n + first + row - tile_columns() : first + row;
  }
};

// The scales and the zero point with which a thread converts 16 bytes of one row of w.
template <class T, Values kValues, ScaleOf kScaleOf>
struct RowScales {
  float sum_scale = 0;  // kSums: the scale of the partial sum of a round
  // Scales of values, each repeated in both 16-bit parts of its word. scales[0] is for the first eight bytes of w, and
  // scales[1] for the last eight.
  std::uint32_t scales[2] = {};
  std::uint32_t added[2] = {};                     // offsets of float16 scales, in the order of `scales`
  int zero = kScaleOf == ScaleOf::kPairs ? 0 : 8;  // zero point of int4

  // `tile` points to the scales of a tile in shared memory. `scale_at` is the byte offset of the thread's first scale
  // from there. If `has_zero` is true, `zero_at` is the byte offset of the zero point. `two` says whether the second
  // half of the thread's 16 bytes of w belongs to the next group.
  __device__ RowScales(const unsigned char* tile, int scale_at, bool has_zero, int zero_at, bool two) {
    const unsigned char* const scale = tile + scale_at;
    [[maybe_unused]] const int next = two ? scale_size(kValues, kScaleOf) : 0;
    if constexpr (kScaleOf == ScaleOf::kSums) {
      sum_scale = *reinterpret_cast<const float*>(scale);
    } else if constexpr (kScaleOf == ScaleOf::kValues && kValues == Values::kE2M1) {
      scales[0] = value_scale<T, kValues>(number_of_e4m3(scale[0]));
      scales[1] = value_scale<T, kValues>(number_of_e4m3(scale[1]));
    } else if constexpr (kScaleOf == ScaleOf::kValues) {
      scales[0] = scales[1] = value_scale<T, kValues>(*reinterpret_cast<const float*>(scale));
    } else if constexpr (kScaleOf == ScaleOf::kHalves) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        put(i, ScaleAndOffset<T, kValues>::of_scale(to_float(*reinterpret_cast<const __half*>(scale + i * next))));
    } else if constexpr (kScaleOf == ScaleOf::kPairs) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(scale + i * next));
        put(i, ScaleAndOffset<T, kValues>::of_pair(pair.x, pair.y));
      }
    }
    if (kValues == Values::kInt4 && has_zero) zero = tile[zero_at];
  }

  // Returns the values of a converted pair, scaled if the kernel scales values. `half` says in which half of the
  // thread's 16 bytes the pair lies.
  __device__ std::uint32_t values_of(std::uint32_t pair, std::uint32_t offset, int half) const {
    if constexpr (kScaleOf == ScaleOf::kPairs || (kScaleOf == ScaleOf::kHalves && kSmallInts<T, kValues>))
      return scaled_and_moved<T, kValues>(pair, offset, scales[half], added[half]);
    if constexpr (scales_values(kScaleOf)) return scaled<T, kValues>(pair, offset, scales[half]);
    return exact<T, kValues>(pair, offset);
  }

 private:
  __device__ void put(int i, const ScaleAndOffset<T, kValues>& both) {
    scales[i] = both.scale;
    added[i] = both.added;
  }
};

// Converts a word, which is eight 4-bit values or four bytes, to the pairs that values_of() takes.
template <class T, Values kValues, ScaleOf kScaleOf>
__device__ inline void convert_word(std::uint32_t word, std::uint32_t (&pairs)[values_of_word(kValues) / 2]) {
  constexpr bool kSmall = has_halves(kScaleOf) && kSmallInts<T, kValues>;
  if constexpr (is_packed(kValues) && kSmall) {
    convert_small_nibbles(word, pairs);
  } else if constexpr (is_packed(kValues)) {
    convert_nibbles<T, kValues>(word, pairs);
  } else if constexpr (kSmall) {
    convert_small_bytes(word, kScaleOf == ScaleOf::kPairs ? 0 : kFlipSigns, pairs);
  } else {
    convert_bytes<T, kValues>(word, pairs);
  }
}

// Returns whether the second half of a thread's 16 bytes belongs to the next group. The result matters only if the
// kernel scales values.
template <Values kValues, class T>
__device__ inline bool has_two_groups(const StreamedQuantised<T>& p) {
  return is_packed(kValues) && p.group_shift == 4;
}

// Copies the scales and zero points of a tile to shared memory. With a gate they are in two parts, one for gate rows
// and one for up rows. One thread calls this function.
template <class T>
__device__ void copy_scales(const StreamedQuantised<T>& p, int tile, unsigned char* to, SharedBarrier& arrived) {
  arrived.arrive_and_expect(static_cast<std::uint32_t>(p.scales.scale_bytes + p.scales.zero_bytes));
  const int parts = p.is_gated() ? 2 : 1;
  const int scale_size = p.scale_size;
  const int bytes = p.scales.scale_bytes / parts;
  const int zeros = p.scales.zero_bytes / parts;
  for (int part = 0; part < parts; ++part) {
    const int row = p.weight_row(tile, part * p.tile_columns());
    bulk_copy(to + part * bytes,
              p.w.scales + row / static_cast<int>(p.w.format.group_rows) * p.w.num_groups * scale_size,
              static_cast<std::uint32_t>(bytes), arrived);
    if (zeros > 0)
      bulk_copy(to + p.scales.scale_bytes + part * zeros, p.w.zeros + row * p.w.num_groups,
                static_cast<std::uint32_t>(zeros), arrived);
  }
}

// A thread multiplies two rows of w: rows `row` and `row` + 8 of the tile. This struct holds the offsets of the scales
// and zero points of both rows in the tile's slot of shared memory.
struct ScalePlaces {
  int scales[2];
  int zeros[2];

  template <class T>
  __device__ ScalePlaces(const StreamedQuantised<T>& p, int row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int part = p.is_gated() && half == 1 ? p.scales.scale_bytes / 2 : 0;
      scales[half] = p.scales.scale_row > 0 ? (half * 8 + row) * p.scales.scale_row : part;
      zeros[half] = p.scales.scale_bytes + (half * 8 + row) * p.scales.zero_row;
    }
  }
};

// Stores the results of a tile. `threads` threads share the work, and this thread has the number `thread`. total(x_row,
// w_row) returns a sum in float32, before it is multiplied by the factor and the scale of the row of w. w_row counts
// within the tile.
template <Values kValues, ScaleOf kScaleOf, class T, class Total>
__device__ void store_tile(const StreamedQuantised<T>& p, int tile, int thread, int threads, const Total& total) {
  const int columns = p.tile_columns();
  const auto scaled_total = [&](int x_row, int w_row) {
    const int n = p.weight_row(tile, w_row);
    float factor = p.w.factor == nullptr ? 1.0F : p.w.factor[n];
    if constexpr (kScaleOf == ScaleOf::kRows) factor *= scale_of(p.w, n / static_cast<int>(p.w.format.group_rows));
    if constexpr (scales_values(kScaleOf))
      factor *= has_halves(kScaleOf) && kSmallInts<T, kValues> ? kSmallSumGrow<kValues> : kSumGrow<T, kValues>;
    return total(x_row, w_row) * factor;
  };
  for (int i = thread; i < p.m * columns; i += threads) {
    const int x_row = i / columns;
    const int at = i % columns;
    const int column = tile * columns + at;
    float y = scaled_total(x_row, at);
    if (p.bias != nullptr) y += to_float(p.bias[column]);
    if (p.is_gated()) {
      float up = scaled_total(x_row, columns + at);
      if (p.bias != nullptr) up += to_float(p.bias[p.n + column]);
      y = gated<T>(p.gate, y, up);
    }
    const std::int64_t out = static_cast<std::int64_t>(x_row) * p.n + column;
    if (p.residual != nullptr) y += to_float(p.residual[out]);
    p.y[out] = from_float<T>(y);
  }
}

__device__ inline void sync_streaming_warps() {
  asm volatile("bar.sync 1, %0;" ::"n"(kStreamWarps * kWarp) : "memory");
}

}  // namespace tessera::cuda::quantised
