// Reads and multiplies the weights of quantised experts for moe_streamed.cuh.
//
// A stage has whole weight rows, or up to 2048 bytes of each row. The threads of a quad take neighbouring pieces of a
// row (16 bytes each, moe_quantised_pieces.cuh). The conversion makes pairs of the columns of w, and x is arranged in
// the same pairs. The scales and x are loaded from global memory one chunk (kStreamedChunk columns) ahead. The cache
// lines of scales are prefetched when the item's weights are requested.
//
// Scales are applied in one of two places:
//   - to partial sums (kSums), if the columns that a quad reads at a time share a scale: the products with the unscaled
//     values are summed in float32, and this sum is multiplied by the scale;
//   - to values (kValues), if these columns have several scales: a value times its scale is rounded to T. For NVFP4
//     this is exact. The scales of GGUF's codes (kCodes) are also applied to values. They are float16, and may have
//     offsets.
#pragma once

#include "tessera/ops/cuda/l2_prefetch.cuh"
#include "tessera/ops/moe/moe_quantised_pieces.cuh"
#include "tessera/ops/moe/moe_streams.cuh"

namespace tessera::cuda::moe {

enum class ScaleOf { kSums, kValues, kCodes };

// The number of columns of w that a quad reads at a time.
template <Values kValues>
inline constexpr int kQuadColumns = 4 * kPieceColumns<kValues>;

// The maximum total number of rows of all experts for which the division in Scales::begin_item() is exact.
inline constexpr std::int64_t kMostStackRows = std::int64_t{1} << 22;

template <class T, Values kValues, ScaleOf kScaleOf, int kTeamWarps>
struct QuantisedStream {
  static constexpr int kTeam = kTeamWarps;
  static constexpr bool kPacked = quantised::is_packed(kValues);
  static constexpr int kColumns = kPieceColumns<kValues>;
  static constexpr int kStageColumns = kPacked ? 4096 : 2048;
  static constexpr int kColumnMultiple = kQuadColumns<kValues>;
  static constexpr int kPieces = kPacked ? 1 : 2;     // the number of pieces that a thread has in a chunk
  static constexpr int kPieceBytes = kTeam * 4 * 16;  // the bytes from a thread's first piece to its second
  static constexpr bool kCodes = kScaleOf == ScaleOf::kCodes;
  static constexpr bool kHasFactors = kScaleOf != ScaleOf::kSums;
  using OnePiece = Piece<kValues, kCodes>;

  __host__ __device__ static int row_bytes(int columns) { return kPacked ? columns / 2 : columns; }
  __host__ __device__ static int more_bytes(int) { return 0; }
  __device__ static constexpr int column_of(int d) { return kPacked ? d * 8 : d / 2 * kPieceBytes + d % 2 * 8; }
  // Returns how many pieces of a chunk each thread of warp `part` of the team has.
  __device__ static int steps(int columns, int part) {
    const int behind = row_bytes(columns) - part * 64;
    return min(kPieces, (behind + kPieceBytes - 1) / kPieceBytes);
  }

  // Returns the factor by which a row's sums must be multiplied. `row` is the row's number among all experts' rows.
  __device__ static float factor(const Matmul<T>& m, std::int64_t row) {
    if constexpr (kCodes) return code_factor<T>(kValues);
    return (m.matrix.factor == nullptr ? 1.0F : m.matrix.factor[row]) * quantised::kSumGrow<T, kValues>;
  }

  __device__ static void copy(const Matmul<T>& m, std::int64_t low, std::int64_t high, int column, int columns,
                              int pitch, unsigned char* to, SharedBarrier& full) {
    const int row = row_bytes(m.k);
    const std::uint8_t* const from = m.matrix.values + row_bytes(column);
    copy_rows(from + low * row, from + high * row, row, row_bytes(columns), pitch, to, full);
  }

  // Prefetches the cache lines of the item's scales. Only one warp calls this function.
  __device__ static void prefetch_scales(const Matmul<T>& m, std::int64_t low, std::int64_t high) {
    const QuantisedMatrix& w = m.matrix;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane >= kStreamedWeightRows) return;
    const std::int64_t number = (lane < 8 ? low : high) + lane % 8;
    const auto lines = [](const auto* from, std::int64_t count) {
      const auto* const bytes = reinterpret_cast<const char*>(from);
      const std::int64_t last = count * static_cast<std::int64_t>(sizeof(*from)) - 1;
      for (std::int64_t at = 0; at < last; at += 128) prefetch_to_l2(bytes + at);
      prefetch_to_l2(bytes + last);
    };
    const WeightRow row(w, number);
    if constexpr (kCodes) {
      const std::int64_t bytes = w.format.scales == QuantisedFormat::Scales::kPairs ? 4 : 2;  // the size of a scale
      lines(w.scales + row.scale * bytes, w.num_groups * bytes);
    } else if constexpr (kValues == Values::kE2M1) {
      lines(w.scales + row.scale, w.num_groups);
    } else {
      lines(reinterpret_cast<const float*>(w.scales) + row.scale, w.num_groups);
    }
    if (kValues == Values::kInt4 && w.zeros != nullptr) lines(w.zeros + number * w.num_groups, w.num_groups);
    if (w.factor != nullptr) prefetch_to_l2(w.factor + number);
  }

  // The scales of the pieces that a thread has in its two rows.
  class Scales {
   public:
    // Begins an item. `low` and `high` are the numbers of the thread's two rows among all experts' rows. The function
    // divides row numbers by group_rows in float32, which is exact for up to kMostStackRows rows.
    __device__ void begin_item(const Streamed<T>& p, int low, int high) {
      const int rows[2] = {low, high};
      const auto groups = static_cast<int>(p.matmul.matrix.num_groups);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int of_row = static_cast<int>((static_cast<float>(rows[half]) + 0.5F) * p.inverse_group_rows);
        from_[half] = static_cast<std::uint32_t>(of_row) * static_cast<std::uint32_t>(groups);
        if constexpr (kValues == Values::kInt4)
          zeros_from_[half] = static_cast<std::uint32_t>(rows[half]) * static_cast<std::uint32_t>(groups);
      }
    }

    // Loads the scales for a chunk. `first` is the chunk's first column.
    __device__ void load(const Streamed<T>& p, int first) {
      const Matmul<T>& m = p.matmul;
      const QuantisedMatrix& w = m.matrix;
      const int thread = static_cast<int>(threadIdx.x);
      const int part = thread / kWarp % kTeam;
#pragma unroll
      for (int d = 0; d < kPieces; ++d) {
        // With kSums, all pieces of a quad use the scale of the quad's first column. A column number past the row's
        // last column is replaced by one within the row, so that the load stays within the scales. The replaced scale
        // does not matter, because pieces past the row's last column are not used.
        const int quad = first + part * kQuadColumns<kValues> + d * kPieceBytes;
        const int at =
            kScaleOf == ScaleOf::kSums ? min(quad, m.k - 1) : min(quad + thread % 4 * kColumns, m.k - kColumns);
        const int group = at >> p.group_shift;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if constexpr (kCodes) {
            const std::uint32_t scale = from_[half] + static_cast<std::uint32_t>(group);
            bits_[d][half] = code_scale(w, scale);
            zeros_[half] = code_zero(w);
            if constexpr (kValues == Values::kInt4) {
              const bool small = p.group_shift == 4;
              second_[half] = small ? code_scale(w, scale + 1) : bits_[d][half];
            }
          } else if constexpr (kValues == Values::kE2M1) {
            bits_[d][half] = *reinterpret_cast<const std::uint16_t*>(w.scales + from_[half] + group);
          } else {
            bits_[d][half] = reinterpret_cast<const std::uint32_t*>(w.scales)[from_[half] + group];
          }
          if constexpr (kValues == Values::kInt4 && !kCodes)
            zeros_[half] = w.zeros == nullptr ? 8 : w.zeros[zeros_from_[half] + group];
        }
      }
    }

    __device__ OnePiece piece(int d, int half, const uint4& words) const {
      return {.words = words,
              .scale = bits_[d][half],
              .second = kCodes && kValues == Values::kInt4 ? second_[half] : bits_[d][half],
              .zero = kCodes || kValues == Values::kInt4 ? zeros_[half] : 0};
    }
    __device__ float of_sums(int d, int half) const { return __uint_as_float(bits_[d][half]); }

   private:
    std::uint32_t from_[2];
    std::uint32_t zeros_from_[2];
    std::uint32_t bits_[kPieces][2];
    std::uint32_t second_[2];  // for int4 codes: the scales of the second half of the piece
    int zeros_[2];
  };

  __device__ static void multiply(const unsigned char* slot, int pitch, int columns, int chunk, const uint4 (&x)[4],
                                  int steps, const Scales& scales, float (&sum)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int part = static_cast<int>(threadIdx.x) / kWarp % kTeam;
    const int mine = row_bytes(chunk * kStreamedChunk<kTeam>) + (part * 4 + lane % 4) * 16;
#pragma unroll
    for (int d = 0; d < kPieces; ++d) {
      if (d >= steps) break;
      // In place of a piece past the row's last column, the row's last piece is read again. The repeated piece adds
      // nothing, because x is 0 in place of the columns past the last.
      const int byte = min(mine + d * kPieceBytes, row_bytes(columns) - 16);
      const unsigned char* const from = slot + lane / 4 * pitch + byte;
      const OnePiece low = scales.piece(d, 0, *reinterpret_cast<const uint4*>(from));
      const OnePiece high = scales.piece(d, 1, *reinterpret_cast<const uint4*>(from + 8 * pitch));
      if constexpr (kScaleOf != ScaleOf::kSums) {
        multiply_pieces(low, high, x, d, sum);
      } else {
        float partial[4] = {};
        multiply_pieces(low, high, x, d, partial);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] += partial[i] * scales.of_sums(d, i / 2);
      }
    }
  }

 private:
  using Converter =
      std::conditional_t<kScaleOf == ScaleOf::kSums, ExactPiece<T, kValues>, PieceScales<T, kValues, kCodes>>;

  __device__ static void multiply_pieces(const OnePiece& low, const OnePiece& high, const uint4 (&x)[4], int d,
                                         float (&sum)[4]) {
    const Converter of_low(low);
    const Converter of_high(high);
    const std::uint32_t words[2][4] = {{low.words.x, low.words.y, low.words.z, low.words.w},
                                       {high.words.x, high.words.y, high.words.z, high.words.w}};
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      constexpr int kPairs = kWordPairs<kValues>;
      std::uint32_t a[2][kPairs];
      of_low.convert(words[0][word], word, a[0]);
      of_high.convert(words[1][word], word, a[1]);
      std::uint32_t b[4];
      pair_columns<T, kValues>(kPacked ? x[word] : x[d * 2 + word / 2], b);
      const int first = kPacked ? 0 : word % 2 * 2;
#pragma unroll
      for (int i = 0; i < kPairs; i += 2)
        multiply_tile<T>(sum, {a[0][i], a[1][i], a[0][i + 1], a[1][i + 1]}, b[first + i], b[first + i + 1]);
    }
  }
};

}  // namespace tessera::cuda::moe
