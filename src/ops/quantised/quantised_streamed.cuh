// Computes quantised_linear of few rows of x on Hopper, alone or joined with the operator after it if that is a gate
// (silu_mul or gelu_mul). The time is bounded by reading w.
//
// The kernel is built like the kernel of linear_streamed.cuh, and that file gives the reasons. A block processes tiles
// of 16 rows of w, each with all of the k columns. It has nine warps. Eight of them divide the columns of a stage among
// themselves. The ninth lets the copy engine (TMA) load a tile in stages through a ring in shared memory, and begins
// before the preceding kernels have ended. At the end of a tile, the sums of the eight warps are added in an order that
// depends neither on the number of rows of x nor on the tile.
//
// The four threads of a quad read 64 neighbouring bytes of a row of w. Each reads 16 bytes (16 or 32 values) and
// converts them to pairs (quantised_values.cuh). A tensor-core product multiplies 16 rows of w by eight rows of x. The
// columns of k may be in any order, as long as both matrices use the same order. The conversion decides which columns
// of w form a pair, and x's columns are paired in the same way. streamed_tile.cuh says where scales are applied.
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/bulk_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"
#include "tessera/ops/quantised/streamed_tile.cuh"

namespace tessera::cuda::quantised {

inline constexpr int kMostStreamedRows = 16;  // maximum number of rows of x
inline constexpr int kRoundBytes = kStreamWarps * kQuadBytes;
inline constexpr int kRowPadding = 64;  // bytes past a multiple of 128, so that eight threads read from all banks
// The maximum number of bytes of a block's ring and scales. With this limit two blocks fit on a multiprocessor.
template <int kEights>
inline constexpr int kMostRingBytes = (kEights == 1 ? 100 : 92) << 10;

// Returns the maximum number of rounds in a stage. In a round, the eight warps read kRoundBytes of each row of w. A
// thread holds a stage's columns of x in registers. For eight rows of x, one round of packed values takes 16 registers
// of a thread. Two rounds of bytes take as many.
inline constexpr int most_rounds(Values values) { return is_packed(values) ? 1 : 2; }

// How the rows of a stage lie in shared memory.
struct StageRows {
  int bytes;      // bytes of a row of w in a stage, a multiple of kQuadBytes; a tile's last stage may have fewer
  int distance;   // number of bytes from the start of a row to the start of the next
  int in_flight;  // maximum number of stages that are asked for and have not arrived; not above the number of slots
};

// One thread's columns of a row of x in a round, in the order in which the values of w are paired.
template <Values kValues>
struct PairedColumns {
  static constexpr int kLoads = is_packed(kValues) ? 4 : 2;  // number of loads of 16 bytes
  uint4 columns[kLoads];

  template <class T>
  __device__ void load(const T* from) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) columns[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  // Sets `pairs` to the pairs of x that multiply one word of w. `word` is the index of that word in the thread's 16
  // bytes of w. A word of packed values has four pairs, and a word of bytes has two.
  __device__ void pairs_of_word(int word, std::uint32_t (&pairs)[is_packed(kValues) ? 4 : 2]) const {
    if constexpr (is_packed(kValues)) {
      pair_up(columns[word], pairs);
    } else {
      const uint4& eight = columns[word / 2];
      pairs[0] = word % 2 == 0 ? eight.x : eight.z;
      pairs[1] = word % 2 == 0 ? eight.y : eight.w;
    }
  }
};

// Computes y, tile by tile. kEights is the number of groups of eight rows of x. kHeld is the number of stages whose
// columns of x are in registers or being loaded. A block processes every gridDim.x-th tile.
template <class T, Values kValues, ScaleOf kScaleOf, int kEights, int kHeld>
__global__ void __launch_bounds__((kStreamWarps + 1) * kWarp, 2)
    quantised_streamed(const StreamedQuantised<T> p, const StageRows stage_rows) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int kRounds = most_rounds(kValues);
  constexpr int kRows = kEights * 8;
  constexpr int kPerByte = is_packed(kValues) ? 2 : 1;
  constexpr int kPairs = is_packed(kValues) ? 4 : 2;  // number of pairs in a word
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ SharedBarrier full[kMostRingSlots], empty[kMostRingSlots], scales_full[2], scales_empty[2];
  __shared__ float sums[2][kStreamWarps][kTileRows][kRows + 2];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int tiles = p.n / p.tile_columns();
  const int stages = (p.row_bytes + stage_rows.bytes - 1) / stage_rows.bytes;  // number of stages of a tile
  const int slot_bytes = kTileRows * stage_rows.distance;
  const int step = static_cast<int>(gridDim.x);
  const auto bytes_of = [&](int stage) { return min(stage_rows.bytes, p.row_bytes - stage * stage_rows.bytes); };
  if (threadIdx.x == kStreamWarps * kWarp) {
    for (int s = 0; s < p.slots; ++s) {
      full[s].init(1);
      empty[s].init(kStreamWarps);
    }
    for (int s = 0; s < 2; ++s) {
      scales_full[s].init(1);
      scales_empty[s].init(kStreamWarps);
    }
    SharedBarrier::make_visible();
  }
  let_next_begin();
  __syncthreads();

  unsigned char* const tile_scales = shared + p.slots * slot_bytes;
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
    BoxesInFlight in_flight(full, p.slots, stage_rows.in_flight);
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += step, next_tile()) {
      if constexpr (kScaleOf != ScaleOf::kRows) {
        if (pass > 0) scales_empty[buffer].wait((pass - 1) & 1);
        if (lane == 0) copy_scales(p, tile, tile_scales + buffer * p.scales.slot, scales_full[buffer]);
        __syncwarp();
      }
      const std::uint8_t* from =
          p.w.values + static_cast<std::int64_t>(p.weight_row(tile, lane % kTileRows)) * p.row_bytes;
      for (int i = 0; i < stages; ++i, advance()) {
        if (turn > 0) empty[slot].wait((turn - 1) & 1);
        in_flight.wait_for_one();
        const int bytes = bytes_of(i);
        if (lane == 0) full[slot].arrive_and_expect(static_cast<std::uint32_t>(kTileRows * bytes));
        __syncwarp();
        if (lane < kTileRows)
          bulk_copy(shared + slot * slot_bytes + lane * stage_rows.distance, from + i * stage_rows.bytes,
                    static_cast<std::uint32_t>(bytes), full[slot]);
      }
    }
    wait_for_previous();
    return;
  }

  wait_for_previous();
  const int row = lane / 4;                            // the thread's row of w in a tile, and its row of x among eight
  const int byte = warp * kQuadBytes + lane % 4 * 16;  // the thread's first byte in a round's part of a row of w
  const T* mine[kEights];
#pragma unroll
  for (int e = 0; e < kEights; ++e)
    mine[e] = p.x + static_cast<std::int64_t>(min(e * 8 + row, p.m - 1)) * p.w.cols + byte * kPerByte;
  const auto rounds_of = [&](int stage) {  // number of this warp's rounds in the stage
    return (bytes_of(stage) - warp * kQuadBytes + kRoundBytes - 1) / kRoundBytes;
  };
  using Held = PairedColumns<kValues>[kRounds][kEights];
  const auto load = [&](Held& x, int stage) {
    const int rounds = rounds_of(stage);
#pragma unroll
    for (int d = 0; d < kRounds; ++d)
#pragma unroll
      for (int e = 0; e < kEights; ++e)
        if (d < rounds) x[d][e].load(mine[e] + (stage * stage_rows.bytes + d * kRoundBytes) * kPerByte);
  };
  float sum[kEights][4];
  const ScalePlaces places(p, row);
  const bool has_zeros = p.scales.zero_row > 0;
  constexpr int kScaleSize = scale_size(kValues, kScaleOf);
  const bool two = has_two_groups<kValues>(p);
  // Adds the products of a round. The thread's columns begin at `column`.
  const auto add_products = [&](const PairedColumns<kValues>(&x)[kEights], const unsigned char* from, int column) {
    const unsigned char* const of_tile = tile_scales + buffer * p.scales.slot;
    const int group = column >> p.group_shift;
    const auto scales_of = [&](int half) {
      return RowScales<T, kValues, kScaleOf>(of_tile, places.scales[half] + group * kScaleSize, has_zeros,
                                             places.zeros[half] + group, two);
    };
    const RowScales<T, kValues, kScaleOf> scales[2] = {scales_of(0), scales_of(1)};
    const std::uint32_t offsets[2] = {offset_of<T, kValues>(scales[0].zero), offset_of<T, kValues>(scales[1].zero)};
    uint4 w[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      w[half] = *reinterpret_cast<const uint4*>(from + half * 8 * stage_rows.distance);
    float partial[kEights][4] = {};
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      std::uint32_t a[2][kPairs];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t bits = reinterpret_cast<const std::uint32_t*>(&w[half])[word];
        convert_word<T, kValues, kScaleOf>(bits, a[half]);
#pragma unroll
        for (std::uint32_t& pair : a[half]) pair = scales[half].values_of(pair, offsets[half], word / 2);
      }
#pragma unroll
      for (int e = 0; e < kEights; ++e) {
        std::uint32_t b[kPairs];
        x[e].pairs_of_word(word, b);
#pragma unroll
        for (int i = 0; i < kPairs; i += 2)
          multiply_tile<T>(kScaleOf == ScaleOf::kSums ? partial[e] : sum[e],
                           {a[0][i], a[1][i], a[0][i + 1], a[1][i + 1]}, b[i], b[i + 1]);
      }
    }
    if constexpr (kScaleOf == ScaleOf::kSums) {
#pragma unroll
      for (int e = 0; e < kEights; ++e)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[e][i] += partial[e][i] * scales[i / 2].sum_scale;
    }
  };
  const auto multiply = [&](const Held& x, int stage) {
    const int rounds = rounds_of(stage);
    full[slot].wait(turn & 1);
    const unsigned char* const from = shared + slot * slot_bytes + row * stage_rows.distance + byte;
#pragma unroll
    for (int d = 0; d < kRounds; ++d)
      if (d < rounds)
        add_products(x[d], from + d * kRoundBytes, (stage * stage_rows.bytes + d * kRoundBytes + byte) * kPerByte);
    __syncwarp();
    if (lane == 0) empty[slot].arrive();
    advance();
  };

  const bool stay = stages <= kHeld;
  Held x[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (i < stages) load(x[i], i);
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += step, next_tile()) {
    if constexpr (kScaleOf != ScaleOf::kRows) scales_full[buffer].wait(pass & 1);
#pragma unroll
    for (auto& of_rows : sum)
#pragma unroll
      for (float& y : of_rows) y = 0;
    for (int first = 0; first < stages; first += kHeld) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        if (first + i >= stages) break;
        multiply(x[i], first + i);
        if (stay) continue;
        if (first + i + kHeld < stages) {
          load(x[i], first + i + kHeld);
        } else if (tile + step < tiles) {
          load(x[i], i);
        }
      }
    }
#pragma unroll
    for (int e = 0; e < kEights; ++e)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(&sums[buffer][warp][half * 8 + row][e * 8 + lane % 4 * 2]) =
            make_float2(sum[e][half * 2], sum[e][half * 2 + 1]);
    if (kScaleOf != ScaleOf::kRows && lane == 0) scales_empty[buffer].arrive();
    sync_streaming_warps();  // all reads of the previous tile's sums precede this barrier
    store_tile<kValues, kScaleOf>(p, tile, static_cast<int>(threadIdx.x), kStreamWarps * kWarp,
                                  [&](int x_row, int w_row) {
                                    float t = 0;
#pragma unroll
                                    for (int w = 0; w < kStreamWarps; ++w) t += sums[buffer][w][w_row][x_row];
                                    return t;
                                  });
  }
#endif
}

}  // namespace tessera::cuda::quantised
