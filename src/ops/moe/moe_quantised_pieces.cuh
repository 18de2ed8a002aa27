// Reads quantised experts' weights (quantised_matrix.h) for moe_experts' kernels, in pieces. A piece is 16 bytes of a
// row, which are 16 neighbouring columns, or 32 columns if values have four bits.
//
// Scales are applied in one of two places. If a scale belongs to a whole row, the row's sums are multiplied by it
// (quantised_sum_factor()). Other scales multiply the values, and the products are rounded to T. The products of NVFP4
// are exact in T, but those of other formats are not. "Codes" are the integers of GGUF's blocks (block_codes.h). Their
// scales are float16, may have offsets, and always multiply the values.
#pragma once

#include "tessera/ops/cuda/is_aligned.h"
#include "tessera/ops/moe/moe_mxfp4.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"

namespace tessera::cuda::moe {

using quantised::Values;

template <Values kValues>
inline constexpr int kPieceColumns = quantised::is_packed(kValues) ? 32 : 16;
// The number of registers that a word's values fill after they are converted to pairs.
template <Values kValues>
inline constexpr int kWordPairs = quantised::is_packed(kValues) ? 4 : 2;

__host__ __device__ inline bool has_codes(const QuantisedMatrix& m) {
  return m.format.scales == QuantisedFormat::Scales::kFloat16 || m.format.scales == QuantisedFormat::Scales::kPairs;
}

// Returns whether kernels that read 16-byte pieces of a row support the matrix. A row must be a whole number of pieces.
// A piece must have one scale, or two scales in NVFP4 and in int4 codes with groups of 16.
inline bool has_whole_pieces(const QuantisedMatrix& m) {
  const QuantisedFormat& f = m.format;
  if (m.row_bytes() % 16 != 0 || !is_aligned(m.values) || f.groups) return false;
  if (has_codes(m)) return quantised::is_of_block_codes(f);
  if (f.values == Values::kE2M1)
    return f.scales == QuantisedFormat::Scales::kE4M3 && f.group_cols == kNvfp4Group && f.group_rows == 1;
  const std::int64_t piece = f.values == Values::kInt4 ? kPieceColumns<Values::kInt4> : kPieceColumns<Values::kE4M3>;
  return f.scales == QuantisedFormat::Scales::kFloat32 && (m.num_groups == 1 || f.group_cols % piece == 0);
}

// Calls f.template operator()<kValues, kCodes>() with the type of the matrix's values, and with kCodes = has_codes(m).
template <class F>
__device__ inline void with_values(const QuantisedMatrix& m, const F& f) {
  switch (m.format.values) {
    case Values::kE4M3: return f.template operator()<Values::kE4M3, false>();
    case Values::kInt8:
      return has_codes(m) ? f.template operator()<Values::kInt8, true>()
                          : f.template operator()<Values::kInt8, false>();
    case Values::kInt4:
      return has_codes(m) ? f.template operator()<Values::kInt4, true>()
                          : f.template operator()<Values::kInt4, false>();
    case Values::kE2M1: return f.template operator()<Values::kE2M1, false>();
  }
}

// Returns scale number `at` of a matrix of codes, and its offset. The lower 16 bits are the scale. The upper 16 bits
// are the offset, or 0 if the format has no offsets.
__device__ inline std::uint32_t code_scale(const QuantisedMatrix& m, std::uint32_t at) {
  if (m.format.scales == QuantisedFormat::Scales::kPairs) return reinterpret_cast<const std::uint32_t*>(m.scales)[at];
  return reinterpret_cast<const std::uint16_t*>(m.scales)[at];
}
// Returns the zero point of int4 codes: 8 if the format has no offsets, else 0. For int8 codes, callers only test
// whether the result is 0.
__device__ inline int code_zero(const QuantisedMatrix& m) {
  return m.format.scales == QuantisedFormat::Scales::kPairs ? 0 : 8;
}

// A row of the matrix: the row's number, and the index of the row's first scale.
struct WeightRow {
  std::uint32_t row;
  std::uint32_t scale;

  __device__ WeightRow(const QuantisedMatrix& m, std::int64_t number)
      : row(static_cast<std::uint32_t>(number)),
        scale(row / static_cast<std::uint32_t>(m.format.group_rows) * static_cast<std::uint32_t>(m.num_groups)) {}
};

// A piece (16 bytes of a row) as it is in memory. A kernel converts it to numbers of T only when it multiplies them, so
// the load may take until then.
template <Values kValues, bool kCodes>
struct Piece {
  uint4 words = {};
  std::uint32_t scale = 0;   // the bits of a float32, or two numbers of e4m3; with codes, code_scale()
  std::uint32_t second = 0;  // with codes: code_scale() of the second half of the columns
  int zero = 0;              // zero point of int4; with codes, code_zero()

  // Loads the columns from `column` on. Values from column `end` on are 0.
  __device__ void load(const QuantisedMatrix& m, const WeightRow& row, int column, int end) {
    *this = {};
    if constexpr (kCodes) zero = code_zero(m);
    if (column >= end) return;
    const std::int64_t at = row.row * m.cols + column;
    words = *reinterpret_cast<const uint4*>(m.values + (quantised::is_packed(kValues) ? at / 2 : at));
    if constexpr (kCodes) {
      const bool small = m.format.group_cols == 16;
      const std::uint32_t group = row.scale + static_cast<std::uint32_t>(column >> (small ? 4 : 5));
      scale = code_scale(m, group);
      second = kValues == Values::kInt4 && small ? code_scale(m, group + 1) : scale;
    } else if constexpr (kValues == Values::kE2M1) {
      scale = *reinterpret_cast<const std::uint16_t*>(m.scales + row.scale + column / static_cast<int>(kNvfp4Group));
    } else {
      const bool is_row = m.num_groups == 1;
      const int group = is_row ? 0 : column / static_cast<int>(m.format.group_cols);
      scale = is_row ? __float_as_uint(1.0F) : reinterpret_cast<const std::uint32_t*>(m.scales)[row.scale + group];
      if constexpr (kValues == Values::kInt4) zero = m.zeros == nullptr ? 8 : m.zeros[row.row * m.num_groups + group];
    }
  }
};

// Says whether convert_word() combines bytes 0 and 2 of a word into one pair, and bytes 1 and 3 into another. These
// pairs need no byte permutation.
template <class T, Values kValues>
inline constexpr bool kAlternates = !quantised::is_packed(kValues) && quantised::kIsBf16<T>;

// Converts the values of a word to pairs, as quantised_values.cuh does, except that kAlternates says which bytes form a
// pair.
template <class T, Values kValues>
__device__ inline void convert_word(std::uint32_t word, std::uint32_t (&pairs)[kWordPairs<kValues>]) {
  if constexpr (quantised::is_packed(kValues)) {
    quantised::convert_nibbles<T, kValues>(word, pairs);
  } else if constexpr (kAlternates<T, kValues>) {
    quantised::convert_bytes_apart<kValues>(word, pairs);
  } else {
    quantised::convert_bytes<T, kValues>(word, pairs);
  }
}

// Arranges eight columns of x in pairs as convert_word() arranges the columns of w.
template <class T, Values kValues>
__device__ inline void pair_columns(const uint4& columns, std::uint32_t (&pairs)[4]) {
  if constexpr (quantised::is_packed(kValues)) {
    quantised::pair_up(columns, pairs);
  } else if constexpr (kAlternates<T, kValues>) {
    pairs[0] = __byte_perm(columns.x, columns.y, 0x5410);
    pairs[1] = __byte_perm(columns.x, columns.y, 0x7632);
    pairs[2] = __byte_perm(columns.z, columns.w, 0x5410);
    pairs[3] = __byte_perm(columns.z, columns.w, 0x7632);
  } else {
    pairs[0] = columns.x, pairs[1] = columns.y, pairs[2] = columns.z, pairs[3] = columns.w;
  }
}

// Restores the ascending order of eight columns that are in the order of pair_columns().
template <class T, Values kValues>
__device__ inline uint4 columns_of(const std::uint32_t (&pairs)[4]) {
  if constexpr (quantised::is_packed(kValues))
    return make_uint4(__byte_perm(pairs[0], pairs[1], 0x5410), __byte_perm(pairs[2], pairs[3], 0x5410),
                      __byte_perm(pairs[0], pairs[1], 0x7632), __byte_perm(pairs[2], pairs[3], 0x7632));
  if constexpr (kAlternates<T, kValues>)
    return make_uint4(__byte_perm(pairs[0], pairs[1], 0x5410), __byte_perm(pairs[0], pairs[1], 0x7632),
                      __byte_perm(pairs[2], pairs[3], 0x5410), __byte_perm(pairs[2], pairs[3], 0x7632));
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// A scale of codes, prepared for the conversion of words.
template <class T, Values kValues>
class CodeScale {
 public:
  CodeScale() = default;
  // Takes the results of code_scale() and code_zero().
  __device__ CodeScale(std::uint32_t bits, int zero) {
    const float2 both = __half22float2(reinterpret_cast<const __half2&>(bits));
    of_ = zero != 0 ? quantised::ScaleAndOffset<T, kValues>::of_scale(both.x)
                    : quantised::ScaleAndOffset<T, kValues>::of_pair(both.x, both.y);
    flip_ = zero != 0 ? quantised::kFlipSigns : 0;
  }

  // Returns the scale that lane `lane` of this thread's quad holds. All lanes of the warp must call this function.
  // `is_moved` says whether the scale has an offset or a zero point.
  __device__ CodeScale of_lane(int lane, bool is_moved) const {
    CodeScale other = *this;
    other.of_.scale = __shfl_sync(~0U, of_.scale, lane, 4);
    if (is_moved) other.of_.added = __shfl_sync(~0U, of_.added, lane, 4);
    return other;
  }

  // Converts a word to pairs of weights, in the order of convert_word(). `offset` is offset_of() of the zero point.
  __device__ void convert(std::uint32_t word, std::uint32_t offset, std::uint32_t (&pairs)[kWordPairs<kValues>]) const {
    if constexpr (quantised::kSmallInts<T, kValues> && quantised::is_packed(kValues)) {
      quantised::convert_small_nibbles(word, pairs);
    } else if constexpr (quantised::kSmallInts<T, kValues>) {
      quantised::convert_small_bytes_apart(word, flip_, pairs);
    } else {
      convert_word<T, kValues>(word, pairs);
    }
#pragma unroll
    for (std::uint32_t& pair : pairs)
      pair = quantised::scaled_and_moved<T, kValues>(pair, offset, of_.scale, of_.added);
  }

 private:
  quantised::ScaleAndOffset<T, kValues> of_;
  std::uint32_t flip_ = 0;  // for convert_small_bytes_apart()
};

// Converts the words of a piece to weights. The weights lack the factor quantised_sum_factor(), by which sums are
// multiplied later.
template <class T, Values kValues, bool kCodes>
class PieceScales {
 public:
  __device__ explicit PieceScales(const Piece<kValues, kCodes>& piece)
      : offset_(quantised::offset_of<T, kValues>(piece.zero)) {
    if constexpr (kCodes) {
      codes_[0] = CodeScale<T, kValues>(piece.scale, piece.zero);
      codes_[1] = CodeScale<T, kValues>(piece.second, piece.zero);
    } else if constexpr (kValues == Values::kE2M1) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        scales_[i] = quantised::value_scale<T, kValues>(
            quantised::number_of_e4m3(static_cast<std::uint8_t>(piece.scale >> (8 * i) & 255U)));
    } else {
      scales_[0] = scales_[1] = quantised::value_scale<T, kValues>(__uint_as_float(piece.scale));
    }
  }

  // Converts word `index` of the piece to pairs of values, in the order of convert_word().
  __device__ void convert(std::uint32_t word, int index, std::uint32_t (&pairs)[kWordPairs<kValues>]) const {
    if constexpr (kCodes) {
      codes_[index / 2].convert(word, offset_, pairs);
    } else {
      convert_word<T, kValues>(word, pairs);
#pragma unroll
      for (std::uint32_t& pair : pairs) pair = quantised::scaled<T, kValues>(pair, offset_, scales_[index / 2]);
    }
  }

 private:
  std::uint32_t scales_[2];
  CodeScale<T, kValues> codes_[2];
  std::uint32_t offset_;
};

// Converts the words of a piece to the values themselves. The values are not multiplied by their scale.
template <class T, Values kValues>
class ExactPiece {
 public:
  __device__ explicit ExactPiece(const Piece<kValues, false>& piece)
      : offset_(quantised::offset_of<T, kValues>(piece.zero)) {}

  __device__ void convert(std::uint32_t word, int, std::uint32_t (&pairs)[kWordPairs<kValues>]) const {
    convert_word<T, kValues>(word, pairs);
#pragma unroll
    for (std::uint32_t& pair : pairs) pair = quantised::exact<T, kValues>(pair, offset_);
  }

 private:
  std::uint32_t offset_;
};

// CodeScale may convert codes to numbers that are too small by a constant factor (kSmallInts). Returns the factor by
// which sums of products with these numbers must be multiplied.
template <class T>
__device__ inline float code_factor(Values values) {
  if constexpr (!quantised::kSmallInts<T, Values::kInt4>) return 1.0F;
  return values == Values::kInt4 ? quantised::kSmallSumGrow<Values::kInt4> : quantised::kSmallSumGrow<Values::kInt8>;
}

// Returns the factor by which the sum of a row's products must be multiplied. `row` is the row's number among all
// experts' rows.
template <class T>
__device__ inline float quantised_sum_factor(const QuantisedMatrix& m, std::int64_t row) {
  float factor = m.factor == nullptr ? 1.0F : m.factor[row];
  if (has_codes(m)) return factor * code_factor<T>(m.format.values);
  if (m.num_groups == 1) factor *= reinterpret_cast<const float*>(m.scales)[WeightRow(m, row).scale];
  switch (m.format.values) {
    case Values::kE4M3: return factor * quantised::kSumGrow<T, Values::kE4M3>;
    case Values::kE2M1: return factor * quantised::kSumGrow<T, Values::kE2M1>;
    default: return factor;
  }
}

}  // namespace tessera::cuda::moe
