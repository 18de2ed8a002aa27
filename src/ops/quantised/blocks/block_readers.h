// Readers of packed blocks: one struct for each type says how codes, scales and minima of sixteen rows are found.
//
// A number of the matrix is scale · (code − kOffset) − minimum. There is a scale for each 32 columns of a row, or for
// each 16 (kHalves), and a minimum for each 32 if the type has minima (kMinimum). Codes are unsigned, or signed bytes
// (kSigned). A reader goes through chunks of 256 columns, whose parts are 32 columns each. It reads as many of the
// sixteen rows as a native vector has lanes.
#pragma once

#include <cstdint>

#include "tessera/ops/quantised/blocks/block_bytes.h"
#include "tessera/ops/quantised/blocks/block_kernels.h"
#include "tessera/ops/quantised/blocks/block_vectors.h"

namespace tessera::blocks {

// Describes a type's unpacked codes for the kernels that compute with them.
template <int kCodeBits, int kCodeOffset, bool kSignedCodes, bool kHalfScales, bool kHasMinimum>
struct CodeForm {
  static constexpr int kBits = kCodeBits;
  static constexpr int kOffset = kCodeOffset;
  static constexpr bool kSigned = kSignedCodes;
  static constexpr bool kHalves = kHalfScales;
  static constexpr bool kMinimum = kHasMinimum;
};

// Says how many bits a code has in addition to four.
enum class More : std::uint8_t { kNothing, kOneBit, kTwoBits };

template <class V, More kMore>
TESSERA_INLINE void read_codes(const std::uint8_t* p, typename V::U (&codes)[8]) {
  using U = typename V::U;
  const U low = V::splat(0x0f0f0f0fu);
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    U both = V::template load<U>(p + v * kPackedVector);
    V::keep(both);
    codes[v] = both & low;
    codes[4 + v] = both >> 4 & low;
  }
  if constexpr (kMore == More::kOneBit) {
    const U high = V::template load<U>(p + 4 * kPackedVector);
    const U fifth = V::splat(0x10101010u);
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) codes[s] |= (s < 4 ? high << (4 - s) : high >> (s - 4)) & fifth;
  }
  if constexpr (kMore == More::kTwoBits) {
    const U two = V::splat(0x30303030u);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const U high = V::template load<U>(p + (4 + half) * kPackedVector);
      codes[half * 4] |= high << 4 & two;
      codes[half * 4 + 1] |= high << 2 & two;
      codes[half * 4 + 2] |= high & two;
      codes[half * 4 + 3] |= high >> 2 & two;
    }
  }
}

// Blocks of 32 columns: Q4_0, Q4_1, Q5_0, Q5_1. A block has one scale. Blocks of Q4_1 and Q5_1 also store the negated
// minimum.
template <class V, More kMore, int kCodeOffset, bool kHasMinimum>
struct ShortReader : CodeForm<kMore == More::kOneBit ? 5 : 4, kCodeOffset, false, false, kHasMinimum> {
  using F = typename V::F;
  static constexpr std::int64_t kCodeBytes = (kMore == More::kOneBit ? 5 : 4) * kPackedVector;
  static constexpr std::int64_t kScaleBytes = (kHasMinimum ? 4 : 2) * kPackedRows;
  static constexpr std::int64_t kRecordBytes = kChunkParts * kCodeBytes + kChunkParts * kScaleBytes;

  const std::uint8_t* codes_at;
  const std::uint8_t* scales_at;

  TESSERA_INLINE void begin(const std::uint8_t* record, int parts, int native) {
    codes_at = record + native * V::kBytes;
    scales_at = record + parts * kCodeBytes + native * (V::kBytes / 2);
  }
  TESSERA_INLINE void codes(int part, typename V::U (&to)[8]) const {
    read_codes<V, kMore>(codes_at + part * kCodeBytes, to);
  }
  TESSERA_INLINE F scale(int part, int) const { return V::halves(scales_at + part * kScaleBytes); }
  TESSERA_INLINE F minimum(int part) const { return -V::halves(scales_at + part * kScaleBytes + 2 * kPackedRows); }
};

template <class V>
struct Q8Reader : CodeForm<8, 0, true, false, false> {
  using F = typename V::F;
  static constexpr std::int64_t kCodeBytes = 8 * kPackedVector;
  static constexpr std::int64_t kScaleBytes = 2 * kPackedRows;
  static constexpr std::int64_t kRecordBytes = kChunkParts * kCodeBytes + kChunkParts * kScaleBytes;

  const std::uint8_t* codes_at;
  const std::uint8_t* scales_at;

  TESSERA_INLINE void begin(const std::uint8_t* record, int parts, int native) {
    codes_at = record + native * V::kBytes;
    scales_at = record + parts * kCodeBytes + native * (V::kBytes / 2);
  }
  TESSERA_INLINE void codes(int part, typename V::U (&to)[8]) const {
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s)
      to[s] = V::template load<typename V::U>(codes_at + part * kCodeBytes + s * kPackedVector);
  }
  TESSERA_INLINE F scale(int part, int) const { return V::halves(scales_at + part * kScaleBytes); }
  TESSERA_INLINE F minimum(int) const { return F{}; }
};

// Codes of 4 bits that stand for signed numbers: IQ4_NL, and MXFP4, whose scale is an exponent.
template <class V, bool kExponent>
struct TableReader : CodeForm<8, 0, true, false, false> {
  using F = typename V::F;
  using U = typename V::U;
  static constexpr std::int64_t kCodeBytes = 4 * kPackedVector;
  static constexpr std::int64_t kScaleBytes = (kExponent ? 1 : 2) * kPackedRows;
  static constexpr std::int64_t kRecordBytes = kChunkParts * kCodeBytes + kChunkParts * kScaleBytes;

  const std::uint8_t* codes_at;
  const std::uint8_t* scales_at;

  TESSERA_INLINE void begin(const std::uint8_t* record, int parts, int native) {
    codes_at = record + native * V::kBytes;
    scales_at = record + parts * kCodeBytes + native * (V::kBytes / (kExponent ? 4 : 2));
  }
  TESSERA_INLINE void codes(int part, U (&to)[8]) const {
    read_codes<V, More::kNothing>(codes_at + part * kCodeBytes, to);
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s)
      to[s] = V::look_up(kExponent ? block_bytes::kE2M1Doubled : block_bytes::kIq4Numbers, to[s]);
  }
  TESSERA_INLINE F scale(int part, int) const {
    if constexpr (!kExponent) return V::halves(scales_at + part * kScaleBytes);
    // The scale is 2^(code − 127) / 2, because the table's numbers are doubled. The codes 0 and 1 give subnormal
    // numbers.
    const U code = V::bytes(scales_at + part * kScaleBytes);
    const U subnormal = V::splat(0x00200000u) << (code & 1u);
    return reinterpret_cast<F>(code < 2u ? subnormal : (code - 1u) << 23);
  }
  TESSERA_INLINE F minimum(int) const { return F{}; }
};

// Blocks of 256 columns with scales and minima of six bits: Q4_K and Q5_K.
template <class V, More kMore>
struct LongReader : CodeForm<kMore == More::kOneBit ? 5 : 4, 0, false, false, true> {
  using F = typename V::F;
  using U = typename V::U;
  static constexpr std::int64_t kCodeBytes = (kMore == More::kOneBit ? 5 : 4) * kPackedVector;
  static constexpr std::int64_t kScaleBytes = 16 * kPackedRows;
  static constexpr std::int64_t kRecordBytes = kChunkParts * kCodeBytes + kScaleBytes;

  const std::uint8_t* codes_at;
  F scale_of_block;
  F minimum_of_block;
  U scales[2];  // byte p of scales[h] is the scale of part 4 h + p
  U minima[2];

  TESSERA_INLINE void begin(const std::uint8_t* record, int parts, int native) {
    codes_at = record + native * V::kBytes;
    const std::uint8_t* p = record + parts * kCodeBytes;
    scale_of_block = V::halves(p + native * (V::kBytes / 2));
    minimum_of_block = V::halves(p + 2 * kPackedRows + native * (V::kBytes / 2));
    p += 4 * kPackedRows + native * V::kBytes;
    // Each row has three words, of four bytes each. In the first word, the lower six bits of byte i are the scale of
    // part i, and the upper two bits of byte i are the upper two bits of the scale of part i + 4. The second word has
    // the minima in the same way. In the third word, byte i belongs to part i + 4: its lower half has the lower four
    // bits of the scale, and its upper half the lower four bits of the minimum.
    const U of_scales = V::template load<U>(p);
    const U of_minima = V::template load<U>(p + kPackedVector);
    const U lower = V::template load<U>(p + 2 * kPackedVector);
    const U six = V::splat(0x3f3f3f3fu);
    const U four = V::splat(0x0f0f0f0fu);
    const U two = V::splat(0x30303030u);
    scales[0] = of_scales & six;
    minima[0] = of_minima & six;
    scales[1] = (lower & four) | (of_scales >> 2 & two);
    minima[1] = (lower >> 4 & four) | (of_minima >> 2 & two);
  }
  TESSERA_INLINE void codes(int part, U (&to)[8]) const { read_codes<V, kMore>(codes_at + part * kCodeBytes, to); }
  TESSERA_INLINE F scale(int part, int) const {
    return scale_of_block * V::floats(V::byte_of(scales[part / 4], part % 4));
  }
  TESSERA_INLINE F minimum(int part) const {
    return minimum_of_block * V::floats(V::byte_of(minima[part / 4], part % 4));
  }
};

// Q6_K: a signed scale of 8 bits for each 16 columns.
template <class V>
struct Q6Reader : CodeForm<6, 32, false, true, false> {
  using F = typename V::F;
  using U = typename V::U;
  static constexpr std::int64_t kCodeBytes = 6 * kPackedVector;
  static constexpr std::int64_t kScaleBytes = 18 * kPackedRows;
  static constexpr std::int64_t kRecordBytes = kChunkParts * kCodeBytes + kScaleBytes;

  const std::uint8_t* codes_at;
  const std::uint8_t* scales_at;
  F scale_of_block;

  TESSERA_INLINE void begin(const std::uint8_t* record, int parts, int native) {
    codes_at = record + native * V::kBytes;
    scales_at = record + parts * kCodeBytes;
    scale_of_block = V::halves(scales_at + native * (V::kBytes / 2));
    scales_at += 2 * kPackedRows + native * V::kLanes;
  }
  TESSERA_INLINE void codes(int part, U (&to)[8]) const {
    read_codes<V, More::kTwoBits>(codes_at + part * kCodeBytes, to);
  }
  TESSERA_INLINE F scale(int part, int half) const {
    return scale_of_block * V::floats(V::signed_bytes(scales_at + (2 * part + half) * kPackedRows));
  }
  TESSERA_INLINE F minimum(int) const { return F{}; }
};

// IQ4_XS: IQ4_NL's numbers with a scale of six bits for each 32 columns.
template <class V>
struct Iq4XsReader : CodeForm<8, 0, true, false, false> {
  using F = typename V::F;
  using U = typename V::U;
  using I = typename V::I;
  static constexpr std::int64_t kCodeBytes = 4 * kPackedVector;
  static constexpr std::int64_t kScaleBytes = 8 * kPackedRows;
  static constexpr std::int64_t kRecordBytes = kChunkParts * kCodeBytes + kScaleBytes;

  const std::uint8_t* codes_at;
  F scale_of_block;
  U upper;  // the upper two bits of each part's scale
  U lower;  // the lower four bits of each part's scale

  TESSERA_INLINE void begin(const std::uint8_t* record, int parts, int native) {
    codes_at = record + native * V::kBytes;
    const std::uint8_t* p = record + parts * kCodeBytes;
    scale_of_block = V::halves(p + native * (V::kBytes / 2));
    upper = V::words(p + 2 * kPackedRows + native * (V::kBytes / 2));
    lower = V::template load<U>(p + 4 * kPackedRows + native * V::kBytes);
  }
  TESSERA_INLINE void codes(int part, U (&to)[8]) const {
    read_codes<V, More::kNothing>(codes_at + part * kCodeBytes, to);
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) to[s] = V::look_up(block_bytes::kIq4Numbers, to[s]);
  }
  TESSERA_INLINE F scale(int part, int) const {
    const U six = (lower >> (4 * part) & 15u) | (upper >> (2 * part) & 3u) << 4;
    return scale_of_block * V::floats(reinterpret_cast<I>(six) - 32);
  }
  TESSERA_INLINE F minimum(int) const { return F{}; }
};

}  // namespace tessera::blocks
