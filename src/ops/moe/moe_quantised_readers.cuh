// Reads the weights of quantised experts for the kernels of moe_few_rows.cuh and moe_grouped.cuh. One kernel supports
// all formats, because it chooses the type of the values before the loops that read them.
#pragma once

#include "tessera/ops/moe/moe_few_rows.cuh"
#include "tessera/ops/moe/moe_grouped.cuh"
#include "tessera/ops/moe/moe_quantised_pieces.cuh"

namespace tessera::cuda::moe {

// Converts eight neighbouring columns of a piece to pairs. The first of them is column 8 · `eight` of the piece.
template <class T, Values kValues, bool kCodes>
__device__ inline void convert_eight(const PieceScales<T, kValues, kCodes>& scales, const uint4& words, int eight,
                                     std::uint32_t (&pairs)[4]) {
  const std::uint32_t all[] = {words.x, words.y, words.z, words.w};
  if constexpr (quantised::is_packed(kValues)) {
    scales.convert(all[eight], eight, pairs);
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      std::uint32_t two[2];
      scales.convert(all[eight * 2 + i], eight * 2 + i, two);
      pairs[2 * i] = two[0], pairs[2 * i + 1] = two[1];
    }
  }
}

// Multiplies as PlainRows does. A thread reads one piece (16 bytes) of each of its two weight rows at a time. The next
// pieces are loaded while the current ones are multiplied.
template <class T>
class QuantisedRows {
 public:
  static constexpr int kBlocks = 2;
  static constexpr bool kScalesSums = true;

  __device__ QuantisedRows(const Matmul<T>& p, std::int64_t low, std::int64_t high)
      : m_(p.matrix), rows_{WeightRow(p.matrix, low), WeightRow(p.matrix, high)} {}

  __device__ static float sum_factor(const Matmul<T>& p, std::int64_t row) {
    return quantised_sum_factor<T>(p.matrix, row);
  }

  __device__ void add(const T* const (&of_row)[2], bool has_high, float (&sum)[2][4]) const {
    with_values(m_, [&]<Values kValues, bool kCodes>() { add_of<kValues, kCodes>(of_row, has_high, sum); });
  }

 private:
  template <Values kValues, bool kCodes>
  __device__ void add_of(const T* const (&of_row)[2], bool has_high, float (&sum)[2][4]) const {
    constexpr int kColumns = kPieceColumns<kValues>;
    constexpr int kStep = kWarps * 4 * kColumns;
    const int cols = static_cast<int>(m_.cols);
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    Piece<kValues, kCodes> next[2];
    const auto fetch = [&](int column) {
#pragma unroll
      for (int half = 0; half < 2; ++half) next[half].load(m_, rows_[half], column, cols);
    };
    const int begin = warp * 4 * kColumns;  // the warp's first column
    fetch(begin + lane % 4 * kColumns);
    for (int first = begin; first < cols; first += kStep) {
      const int column = first + lane % 4 * kColumns;
      const Piece<kValues, kCodes> now[2] = {next[0], next[1]};
      fetch(column + kStep);
      const PieceScales<T, kValues, kCodes> scales[2] = {PieceScales<T, kValues, kCodes>(now[0]),
                                                         PieceScales<T, kValues, kCodes>(now[1])};
#pragma unroll
      for (int eight = 0; eight < kColumns / 8; ++eight) {
        const auto load = [&](const T* of, bool wanted) {
          return wanted && column < cols ? *reinterpret_cast<const uint4*>(of + column + eight * 8)
                                         : make_uint4(0, 0, 0, 0);
        };
        std::uint32_t x[2][4];
        pair_columns<T, kValues>(load(of_row[0], true), x[0]);
        pair_columns<T, kValues>(load(of_row[1], has_high), x[1]);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          std::uint32_t w[4];
          convert_eight(scales[half], now[half].words, eight, w);
          multiply_tile<T>(sum[half], {x[0][0], x[1][0], x[0][1], x[1][1]}, w[0], w[1]);
          multiply_tile<T>(sum[half], {x[0][2], x[1][2], x[0][3], x[1][3]}, w[2], w[3]);
        }
      }
    }
  }

  const QuantisedMatrix& m_;
  WeightRow rows_[2];
};

// Copies quantised weights. In each stage a thread copies half of the columns of one weight row. This half is one
// 16-byte piece if values have four bits, and two pieces if they have eight.
template <class T, int kRows, bool kGateUp>
class QuantisedCopy {
 public:
  static constexpr bool kScalesSums = true;

  __device__ QuantisedCopy(const Matmul<T>& p, const Tile& tile, int column)
      : m_(p.matrix),
        end_(column + row() % kTileColumns<kGateUp> < p.n ? p.k : 0),
        from_(p.matrix, weight_row<T, kGateUp>(p, tile, column, row())) {}

  __device__ static float sum_factor(const Matmul<T>& p, std::int64_t row) {
    return quantised_sum_factor<T>(p.matrix, row);
  }

  __device__ void begin(unsigned, int number) {
    const int column = number * kDepth + half() * kHalf;
    with_values(m_, [&]<Values kValues, bool kCodes>() {
      constexpr int kPieces = kHalf / kPieceColumns<kValues>;
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        Piece<kValues, kCodes> piece;
        piece.load(m_, from_, column + i * kPieceColumns<kValues>, end_);
        words_[i] = piece.words;
        scales_[i] = piece.scale;
        if (kPieces == 1) scales_[1] = piece.second;
        zero_ = piece.zero;
      }
    });
  }

  __device__ void end(unsigned to) {
    with_values(m_, [&]<Values kValues, bool kCodes>() { store<kValues, kCodes>(to); });
  }

 private:
  static constexpr int kHalf = 32;  // columns of a stage that a thread copies
  static constexpr int kOfRow = kDepth / kHalf;
  static_assert(kTileWeightRows * kOfRow == kThreads);

  __device__ static int row() { return static_cast<int>(threadIdx.x) / kOfRow; }
  __device__ static int half() { return static_cast<int>(threadIdx.x) % kOfRow; }

  template <Values kValues, bool kCodes>
  __device__ void store(unsigned to) const {
    constexpr int kPieces = kHalf / kPieceColumns<kValues>;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const PieceScales<T, kValues, kCodes> scales(Piece<kValues, kCodes>{
          .words = words_[i], .scale = scales_[i], .second = scales_[kPieces == 1 ? 1 : i], .zero = zero_});
#pragma unroll
      for (int eight = 0; eight < 4 / kPieces; ++eight) {
        std::uint32_t pairs[4];
        convert_eight(scales, words_[i], eight, pairs);
        const uint4 columns = columns_of<T, kValues>(pairs);
        const int chunk = half() * (kHalf / 8) + i * (4 / kPieces) + eight;
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(chunk_at(to, kRows + row(), chunk)),
                     "r"(columns.x), "r"(columns.y), "r"(columns.z), "r"(columns.w)
                     : "memory");
      }
    }
  }

  const QuantisedMatrix& m_;
  int end_;  // the values from this column on are 0
  WeightRow from_;
  uint4 words_[2] = {};
  std::uint32_t scales_[2] = {};  // a scale for each of two pieces, or for each half of a piece of codes
  int zero_ = 0;
};

}  // namespace tessera::cuda::moe
