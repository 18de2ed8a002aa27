// Computes the matmuls of moe_hopper.cuh with quantised weights, which are converted in registers
// (moe_hopper_parts.cuh).
//
// In a box of weights (one copy by TMA) each row has 128 bytes, which are 128 columns, or 256 if values have four bits.
// A thread converts a word into pairs of columns that are not neighbours. The kernel that sorts x brings the columns of
// x into the same order (ColumnOrder), and the kernel of gate and up stores its results in the order that the weights
// of down need. Scales are loaded from global memory one slot of the ring of x ahead. If a scale belongs to a whole
// row, the row's sums are multiplied by it. Otherwise the weights are multiplied by their scales and rounded to
// bfloat16.
//
// Each thread of a warpgroup converts its part of a stage (64 columns of k) in about 100 instructions. With 256 tokens
// per tile, the products of a stage last 1024 cycles of the multiprocessor. Converting issues instructions in a fifth
// of these cycles, while the other warpgroup fills the tensor cores. With few tokens, converting limits the speed. In
// this case a slot of the ring of x holds several stages, called parts.
#pragma once

#include "tessera/ops/moe/moe_hopper_parts.cuh"
#include "tessera/ops/moe/moe_quantised_pieces.cuh"

namespace tessera::cuda::moe {

template <Values kValues>
inline constexpr int kBoxStages = kHopperRowBytes*(quantised::is_packed(kValues) ? 2 : 1) / kHopperDepth;
inline constexpr ColumnOrder order_of(Values values) {
  return quantised::is_packed(values) ? ColumnOrder::kPaired : ColumnOrder::kAlternating;
}
template <bool kGateUp>
inline constexpr int kQuantisedShared = 1024 + kPackedStages* kPackedRowsBytes + kPackedBoxes* kPackedBoxBytes +
                                        2 * kHopperWarpgroups* kResultBytes<kGateUp>;
static_assert(kQuantisedShared<false> <= 232448 - 1024,
              "a block may have 232448 bytes; 1024 of them hold the barriers");

// The matmul's arguments. The tensor map matmul.w treats the matrix's bytes as 16-bit elements. Its boxes have 64
// elements by kHopperWeightRows rows.
template <class T>
struct HopperQuantised {
  HopperMatmul<T> matmul;
  QuantisedMatrix matrix;  // [experts · w_rows, k]
  int group_shift;         // the group of a column is column >> group_shift
};

struct QuantisedRings {
  RowsRing rows;
  BoxRing weights;
};

// Issues all copies of the block, in the order in which the block needs them. Only one thread calls this function.
template <class T, Values kValues>
__device__ inline void copy_quantised_tiles(const HopperMatmul<T>& p, QuantisedRings r, int items, int across,
                                            int stages) {
  const int rank = static_cast<int>(block_in_cluster());
  const int clusters = static_cast<int>(gridDim.x) / kHopperCluster;
  for (int i = static_cast<int>(blockIdx.x) / kHopperCluster; i < items; i += clusters) {
    const Tile tile = p.order.tiles[i / across];
    const int group = (i % across * kHopperCluster + rank) * (kHopperWeightRows / 16);
    copy_stages<T, kBoxStages<kValues>, true>(p, r.rows, r.weights, tile, group, rank, stages);
  }
}

// The scale of one weight row in a stage, for 8-bit values. A group of columns with one scale is the whole row, or has
// a multiple of 64 columns. The scales of kParts stages are loaded ahead.
template <class T, Values kValues, int kParts>
class OneScale {
 public:
  // Begins a tile. `row` is the row's number among all experts' rows.
  __device__ void begin(const HopperQuantised<T>& p, std::int64_t row) { first_ = WeightRow(p.matrix, row).scale; }

  __device__ void load(const HopperQuantised<T>& p, int part, int stage) {
    const auto last = static_cast<int>(p.matrix.num_groups) - 1;
    const int group = min(stage * kHopperDepth >> p.group_shift, last);
    scales_[part] = last == 0 ? 1.0F : reinterpret_cast<const float*>(p.matrix.scales)[first_ + group];
  }
  // Prepares the scale of stage `part` for convert().
  __device__ void prepare(const HopperQuantised<T>&, int part) {
    scale_ = quantised::value_scale<T, kValues>(scales_[part]);
  }

  // Converts one word of the stage's weights.
  __device__ void convert(std::uint32_t word, int, std::uint32_t (&pairs)[kWordPairs<kValues>]) const {
    const std::uint32_t offset = quantised::offset_of<T, kValues>(0);
    convert_word<T, kValues>(word, pairs);
#pragma unroll
    for (std::uint32_t& pair : pairs) pair = quantised::scaled<T, kValues>(pair, offset, scale_);
  }

 private:
  std::uint32_t first_;
  float scales_[kParts];
  std::uint32_t scale_;
};

// The scales of one weight row in a stage, for four-bit values and for codes (has_codes()). The four threads of a quad
// have the same row. Each of these threads loads and prepares the scale of a fourth of the stage's columns, and gets
// the others by shuffles. Loading and preparing a scale takes about as many instructions as converting four values.
template <class T, Values kValues, bool kCodes, int kParts>
class QuadScales {
 public:
  __device__ void begin(const HopperQuantised<T>& p, std::int64_t row) {
    const WeightRow at(p.matrix, row);
    first_ = at.scale;
    if constexpr (kHasZeros) first_zero_ = at.row * static_cast<std::uint32_t>(p.matrix.num_groups);
  }

  __device__ void load(const HopperQuantised<T>& p, int part, int stage) {
    const QuantisedMatrix& m = p.matrix;
    const auto last = static_cast<int>(m.num_groups) - 1;
    const int column = stage * kHopperDepth + static_cast<int>(threadIdx.x) % 4 * kColumns;
    const auto group = static_cast<std::uint32_t>(min(column >> p.group_shift, last));
    if constexpr (kCodes) {
      bits_[part] = code_scale(m, first_ + group);
    } else if constexpr (kValues == Values::kE2M1) {
      bits_[part] = reinterpret_cast<const std::uint8_t*>(m.scales)[first_ + group];
    } else {
      bits_[part] =
          last == 0 ? __float_as_uint(1.0F) : reinterpret_cast<const std::uint32_t*>(m.scales)[first_ + group];
    }
    if constexpr (kHasZeros) zeros_[part] = m.zeros == nullptr ? 8 : m.zeros[first_zero_ + group];
  }

  __device__ void prepare(const HopperQuantised<T>& p, int part) {
    if constexpr (kCodes) {
      codes_ = CodeScale<T, kValues>(bits_[part], code_zero(p.matrix));
      code_offset_ = quantised::offset_of<T, kValues>(code_zero(p.matrix));
      is_moved_ = quantised::kSmallInts<T, kValues> || p.matrix.format.scales == QuantisedFormat::Scales::kPairs;
    } else if constexpr (kValues == Values::kE2M1) {
      scale_ = quantised::value_scale<T, kValues>(quantised::number_of_e4m3(static_cast<std::uint8_t>(bits_[part])));
    } else {
      scale_ = quantised::value_scale<T, kValues>(__uint_as_float(bits_[part]));
      offset_ = quantised::offset_of<T, kValues>(zeros_[part]);
    }
  }

  // Converts word i of the thread's weights in the prepared stage. The words i of a quad's four threads together have
  // 16 columns, or 32 columns if values have four bits.
  __device__ void convert(std::uint32_t word, int i, std::uint32_t (&pairs)[kWordPairs<kValues>]) const {
    const int owner = quantised::is_packed(kValues) ? 2 * i + static_cast<int>(threadIdx.x) % 4 / 2 : i;
    if constexpr (kCodes) {
      codes_.of_lane(owner, is_moved_).convert(word, code_offset_, pairs);
    } else {
      const std::uint32_t scale = __shfl_sync(~0U, scale_, owner, 4);
      std::uint32_t offset = quantised::offset_of<T, kValues>(0);
      if constexpr (kHasZeros) offset = __shfl_sync(~0U, offset_, owner, 4);
      convert_word<T, kValues>(word, pairs);
#pragma unroll
      for (std::uint32_t& pair : pairs) pair = quantised::scaled<T, kValues>(pair, offset, scale);
    }
  }

 private:
  static constexpr bool kHasZeros = kValues == Values::kInt4 && !kCodes;
  static constexpr int kColumns = kHopperDepth / 4;
  std::uint32_t first_;
  std::uint32_t first_zero_;
  std::uint32_t bits_[kParts];
  int zeros_[kParts];
  CodeScale<T, kValues> codes_;
  std::uint32_t code_offset_;
  bool is_moved_;
  std::uint32_t scale_;
  std::uint32_t offset_;
};

template <class T, Values kValues, bool kCodes, int kParts>
using StageScales = std::conditional_t<kCodes || quantised::is_packed(kValues), QuadScales<T, kValues, kCodes, kParts>,
                                       OneScale<T, kValues, kParts>>;

// Converts the thread's part of a stage. The thread has two rows of the tile, with the numbers `row` and row + 8.
// `stage` is the stage's number within the box.
template <Values kValues, class Scales>
__device__ inline void convert_stage(const unsigned char* box, int row, int stage, const Scales (&scales)[2],
                                     PackedOperand& to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  constexpr int kPairs = kWordPairs<kValues>;
  constexpr int kWords = 8 / kPairs;  // a thread's words of a row in a stage; each has values for kPairs / 2 steps
  const int first = stage * kWords;   // the stage's first 16-byte chunk in a row of the box
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    std::uint32_t pairs[2][kPairs];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + half * 8;
      const unsigned char* const word = box + r * kHopperRowBytes + ((first + i) ^ (r & 7)) * 16 + lane % 4 * 4;
      scales[half].convert(*reinterpret_cast<const std::uint32_t*>(word), i, pairs[half]);
    }
#pragma unroll
    for (int step = 0; step < kPairs / 2; ++step) {
      std::uint32_t(&operand)[4] = to[i * (kPairs / 2) + step];
      operand[0] = pairs[0][2 * step], operand[1] = pairs[1][2 * step];
      operand[2] = pairs[0][2 * step + 1], operand[3] = pairs[1][2 * step + 1];
    }
  }
}

// Computes the sums of a tile of kN tokens. `rows` has the numbers of the thread's two weight rows among the weight
// rows of all experts.
template <class T, Values kValues, bool kCodes, int kN>
__device__ inline void multiply_quantised(float (&sum)[kMostProductSums], const HopperQuantised<T>& p,
                                          QuantisedRings& r, const std::int64_t (&rows)[2], int stages) {
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / kWarp * 16 + thread % kWarp / 4;
  constexpr int kBox = kBoxStages<kValues>;
  constexpr int kParts = parts_of<kBox>(kN);
  StageScales<T, kValues, kCodes, kParts> scales[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    scales[half].begin(p, rows[half]);
#pragma unroll
    for (int part = 0; part < kParts; ++part) scales[half].load(p, part, part);
  }
  for (int s = 0; s < stages; s += kParts) {
    const int in_box = kParts == kBox ? 0 : s % kBox;
    if (in_box == 0) r.weights.wait_full();
    multiply_slots<T, kN, kParts, kParts>(sum, r.rows, r.weights, s,
                                          /*ends_box=*/in_box == kBox - kParts || s + kParts >= stages,
                                          [&](const unsigned char* box, int part, PackedOperand& to) {
#pragma unroll
                                            for (int half = 0; half < 2; ++half) {
                                              scales[half].prepare(p, part);
                                              scales[half].load(p, part, s + kParts + part);
                                            }
                                            convert_stage<kValues>(box, row, in_box + part, scales, to);
                                          });
  }
  hold(sum);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float factor = quantised_sum_factor<T>(p.matrix, rows[half]);
#pragma unroll
    for (int j = 0; j < kN / 2; j += 4) sum[j + 2 * half] *= factor, sum[j + 2 * half + 1] *= factor;
  }
}

template <class T, Values kValues, bool kCodes>
__device__ inline void multiply_quantised(float (&sum)[kMostProductSums], const HopperQuantised<T>& p,
                                          QuantisedRings& r, const std::int64_t (&rows)[2], int stages, int tokens) {
  with_tile_size(tokens, [&]<int kN>() { multiply_quantised<T, kValues, kCodes, kN>(sum, p, r, rows, stages); });
}

// Computes the matmul, and stores y's columns in the order kResults. Preconditions: n and k are multiples of 16. If
// values have four bits, k is a multiple of 32. If kResults is kPaired, n is a multiple of 32. gridDim.x is a multiple
// of kHopperCluster.
template <class T, Values kValues, bool kCodes, bool kGateUp, ColumnOrder kResults>
__global__ void __launch_bounds__(kHopperThreads, 1) hopper_quantised(const __grid_constant__ HopperQuantised<T> q) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char unaligned[];
  __shared__ SharedBarrier rows_full[kPackedStages], rows_empty[kPackedStages];
  __shared__ SharedBarrier weights_full[kPackedBoxes], weights_empty[kPackedBoxes];
  constexpr int kColumns = kGateUp ? kHopperWeightRows / 2 : kHopperWeightRows;  // columns of the result
  constexpr int kMultiplying = kHopperWarpgroups * kWarpgroup / kWarp;           // warps that multiply
  const HopperMatmul<T>& p = q.matmul;
  unsigned char* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  unsigned char* const boxes = shared + kPackedStages * kPackedRowsBytes;
  QuantisedRings rings{
      .rows = {shared, kPackedRowsBytes, rows_full, rows_empty},
      .weights = {boxes, kPackedBoxBytes, weights_full, weights_empty},
  };
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
  if (threadIdx.x == 0) {
    rings.rows.prepare(kHopperCluster * kMultiplying);
    rings.weights.prepare(kMultiplying);
    SharedBarrier::make_visible();
    prefetch_map(p.x);
    prefetch_map(p.w);
  }
  let_next_begin();
  sync_cluster();
  wait_for_previous();

  const int across = (p.n + kColumns * kHopperCluster - 1) / (kColumns * kHopperCluster);
  const int items = *p.order.num_tiles * across;
  const int stages = (p.k + kHopperDepth - 1) / kHopperDepth;
  if (warpgroup == kHopperWarpgroups) {
    // The block has 168 registers for each of its threads. A thread of this warpgroup keeps 24 registers, and a thread
    // of the other two gets 240. This makes 24 + 2 · 240 = 3 · 168. With a larger sum, the kernel would wait for
    // registers forever.
    keep_registers<24, false>();
    if (threadIdx.x % kWarpgroup == 0) {
      let_copies_see_stores();
      copy_quantised_tiles<T, kValues>(p, rings, items, across, stages);
    }
    __syncwarp();
  } else {
    keep_registers<240, true>();
    const int rank = static_cast<int>(block_in_cluster());
    const int clusters = static_cast<int>(gridDim.x) / kHopperCluster;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    unsigned char* const results = boxes + kPackedBoxes * kPackedBoxBytes + warpgroup * 2 * kResultBytes<kGateUp>;
    int turn = 0;
    for (int i = static_cast<int>(blockIdx.x) / kHopperCluster; i < items; i += clusters) {
      const Tile tile = p.order.tiles[i / across];
      const int column = (i % across * kHopperCluster + rank) * kColumns + warpgroup * kResultColumns<kGateUp>;
      // The thread's two weight rows. In place of rows past the last one, the last row is read again. Its repeated sums
      // are not stored.
      const int mine = column + static_cast<int>(threadIdx.x) % kWarpgroup / kWarp * (kGateUp ? 8 : 16) + lane / 4;
      const std::int64_t stack = static_cast<std::int64_t>(tile.expert) * p.w_rows;
      const std::int64_t rows[2] = {stack + min(mine, p.n - 1),
                                    stack + (kGateUp ? p.n + min(mine, p.n - 1) : min(mine + 8, p.n - 1))};
      float sum[kMostProductSums];
      multiply_quantised<T, kValues, kCodes>(sum, q, rings, rows, stages, tile.rows);
      store_results<T, kGateUp, kResults>(p, sum, tile, column, warpgroup, results, turn);
    }
  }
  // A block must not end before this wait, because other blocks of the cluster may still write its shared memory and
  // signal its barriers.
  sync_cluster();
#endif
}

}  // namespace tessera::cuda::moe
