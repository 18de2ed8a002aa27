#include "tessera/ops/quantised/blocks/packed_layout.h"

#include <algorithm>
#include <cstring>

#include "tessera/ops/cpu/cpu_math.h"

namespace tessera {
namespace {

constexpr std::int64_t kMostElements = 256;  // number of elements in the largest block

constexpr PackedLayout kFourBits{.bits = 4, .num_fields = 1, .fields = {{0, 2}}};
constexpr PackedLayout kFourBitsAndMinimum{.bits = 4, .num_fields = 2, .fields = {{0, 2}, {2, 2}}};
constexpr PackedLayout kFiveBits{.bits = 5, .num_fields = 1, .fields = {{0, 2}}};
constexpr PackedLayout kFiveBitsAndMinimum{.bits = 5, .num_fields = 2, .fields = {{0, 2}, {2, 2}}};
constexpr PackedLayout kEightBits{.bits = 8, .num_fields = 1, .fields = {{0, 2}}};
constexpr PackedLayout kQ4K{.bits = 4, .num_fields = 5, .fields = {{0, 2}, {2, 2}, {4, 4}, {8, 4}, {12, 4}}};
constexpr PackedLayout kQ5K{.bits = 5, .num_fields = 5, .fields = {{0, 2}, {2, 2}, {4, 4}, {8, 4}, {12, 4}}};
constexpr PackedLayout kQ6K{.bits = 6, .num_fields = 2, .fields = {{208, 2}, {192, 1, 16}}};
constexpr PackedLayout kIq4Xs{.bits = 4, .num_fields = 3, .fields = {{0, 2}, {2, 2}, {4, 4}}};
constexpr PackedLayout kMxfp4{.bits = 4, .num_fields = 1, .fields = {{0, 1}}};

// Writes the codes of 2 · `half` values: first the lower halves of `half` bytes, and then their upper halves.
TESSERA_INLINE void split_halves(const std::uint8_t* from, std::uint8_t* codes, std::int64_t half) {
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    codes[i] = from[i] & 15u;
    codes[half + i] = from[i] >> 4;
  }
}

// Adds the fifth bits of 32 codes; `from` has them in order.
TESSERA_INLINE void add_fifth_bits(const std::uint8_t* from, std::uint8_t* codes) {
#pragma omp simd
  for (std::int64_t i = 0; i < 32; ++i)
    codes[i] = static_cast<std::uint8_t>(codes[i] | (from[i / 8] >> (i % 8) & 1u) << 4);
}

TESSERA_INLINE void split_q5_k(const std::uint8_t* b, std::uint8_t* codes) {
  for (std::int64_t part = 0; part < 4; ++part) split_halves(b + 48 + part * 32, codes + part * 64, 32);
  for (std::int64_t part = 0; part < 8; ++part)
#pragma omp simd
    for (std::int64_t i = 0; i < 32; ++i)
      codes[part * 32 + i] = static_cast<std::uint8_t>(codes[part * 32 + i] | (b[16 + i] >> part & 1u) << 4);
}

TESSERA_INLINE void split_q6_k(const std::uint8_t* b, std::uint8_t* codes) {
  for (std::int64_t half = 0; half < 2; ++half) {
    split_halves(b + half * 64, codes + half * 128, 64);
    for (std::int64_t part = 0; part < 4; ++part)
#pragma omp simd
      for (std::int64_t i = 0; i < 32; ++i) {
        std::uint8_t& code = codes[half * 128 + part * 32 + i];
        code = static_cast<std::uint8_t>(code | (b[128 + half * 32 + i] >> (2 * part) & 3u) << 4);
      }
  }
}

// Writes the codes of one block, a byte each, in the order of columns.
TESSERA_INLINE void split_block(BlockType type, const std::uint8_t* b, std::uint8_t* codes) {
  switch (type) {
    case BlockType::kQ4_0: return split_halves(b + 2, codes, 16);
    case BlockType::kIQ4_NL: return split_halves(b + 2, codes, 16);
    case BlockType::kQ4_1: return split_halves(b + 4, codes, 16);
    case BlockType::kMXFP4: return split_halves(b + 1, codes, 16);
    case BlockType::kQ5_0: split_halves(b + 6, codes, 16); return add_fifth_bits(b + 2, codes);
    case BlockType::kQ5_1: split_halves(b + 8, codes, 16); return add_fifth_bits(b + 4, codes);
    case BlockType::kQ8_0: std::memcpy(codes, b + 2, 32); return;
    case BlockType::kQ4_K:
      for (std::int64_t part = 0; part < 4; ++part) split_halves(b + 16 + part * 32, codes + part * 64, 32);
      return;
    case BlockType::kQ5_K: return split_q5_k(b, codes);
    case BlockType::kQ6_K: return split_q6_k(b, codes);
    default:  // IQ4_XS
      for (std::int64_t part = 0; part < 8; ++part) split_halves(b + 8 + part * 16, codes + part * 32, 16);
  }
}

// Copies `count` four-byte words of one row to consecutive vectors, one word to each vector. `to` is the row's place in
// the first vector.
TESSERA_INLINE void place(const std::uint8_t* words, std::int64_t count, std::uint8_t* to) {
  for (std::int64_t v = 0; v < count; ++v) std::memcpy(to + v * kPackedVector, words + v * 4, 4);
}

// Packs one row's codes of 32 columns. `to` is the row's place in the first vector.
TESSERA_INLINE void pack_codes(int bits, const std::uint8_t* codes, std::uint8_t* to) {
  if (bits == 8) return place(codes, 8, to);
  std::uint8_t low[16];
#pragma omp simd
  for (std::int64_t i = 0; i < 16; ++i) low[i] = static_cast<std::uint8_t>((codes[i] & 15u) | codes[16 + i] << 4);
  place(low, 4, to);
  std::uint8_t high[8] = {};
  if (bits == 5)
    for (std::int64_t s = 0; s < 8; ++s)
      for (std::int64_t b = 0; b < 4; ++b)
        high[b] = static_cast<std::uint8_t>(high[b] | (codes[4 * s + b] >> 4 & 1u) << s);
  if (bits == 6)
    for (std::int64_t s = 0; s < 8; ++s)
      for (std::int64_t b = 0; b < 4; ++b)
        high[s / 4 * 4 + b] =
            static_cast<std::uint8_t>(high[s / 4 * 4 + b] | (codes[4 * s + b] >> 4 & 3u) << (2 * (s % 4)));
  place(high, bits - 4, to + 4 * kPackedVector);
}

// Packs one block of each of `count` rows. `codes` and `scales` point to the places in the packed form at which the
// codes and the scales of these blocks begin.
TESSERA_CPU_CLONES void pack_blocks(BlockType type, const PackedLayout& layout, const std::uint8_t* rows,
                                    std::int64_t count, std::int64_t row_bytes, std::uint8_t* codes,
                                    std::uint8_t* scales) {
  const std::int64_t elements = block_type_info(type).elements;
  for (std::int64_t r = 0; r < count; ++r) {
    const std::uint8_t* block = rows + r * row_bytes;
    alignas(64) std::uint8_t of_row[kMostElements];
    split_block(type, block, of_row);
    for (std::int64_t c = 0; c < elements; c += kPackedColumns)
      pack_codes(layout.bits, of_row + c, codes + c / kPackedColumns * layout.code_bytes() + r * 4);
    std::uint8_t* to = scales;
    for (int f = 0; f < layout.num_fields; ++f) {
      const PackedLayout::Fields& fields = layout.fields[f];
      for (std::int64_t i = 0; i < fields.count; ++i, to += kPackedRows * fields.bytes)
        std::memcpy(to + r * fields.bytes, block + fields.at + i * fields.bytes,
                    static_cast<std::size_t>(fields.bytes));
    }
  }
}

void pack_sixteen(BlockType type, const std::uint8_t* rows, std::int64_t count, std::int64_t cols,
                  std::uint8_t* packed) {
  const PackedLayout& layout = *packed_layout(type);
  const BlockTypeInfo& size = block_type_info(type);
  const std::int64_t row_bytes = cols / size.elements * size.bytes;
  const std::int64_t block_code_bytes = size.elements / kPackedColumns * layout.code_bytes();
  for (std::int64_t col = 0; col < cols; col += kRecordColumns) {
    const std::int64_t blocks = std::min(kRecordColumns, cols - col) / size.elements;
    std::uint8_t* scales = packed + blocks * block_code_bytes;
    for (std::int64_t b = 0; b < blocks; ++b, rows += size.bytes)
      pack_blocks(type, layout, rows, count, row_bytes, packed + b * block_code_bytes,
                  scales + b * layout.scale_bytes());
    packed += blocks * kPackedRows * size.bytes;
  }
}

}  // namespace

std::int64_t PackedLayout::scale_bytes() const {
  std::int64_t bytes = 0;
  for (int f = 0; f < num_fields; ++f) bytes += kPackedRows * fields[f].bytes * fields[f].count;
  return bytes;
}

const PackedLayout* packed_layout(BlockType type) {
  switch (type) {
    case BlockType::kQ4_0: return &kFourBits;
    case BlockType::kQ4_1: return &kFourBitsAndMinimum;
    case BlockType::kQ5_0: return &kFiveBits;
    case BlockType::kQ5_1: return &kFiveBitsAndMinimum;
    case BlockType::kQ8_0: return &kEightBits;
    case BlockType::kQ4_K: return &kQ4K;
    case BlockType::kQ5_K: return &kQ5K;
    case BlockType::kQ6_K: return &kQ6K;
    case BlockType::kIQ4_NL: return &kFourBits;
    case BlockType::kIQ4_XS: return &kIq4Xs;
    case BlockType::kMXFP4: return &kMxfp4;
    default: return nullptr;
  }
}

void pack_rows(BlockType type, const std::uint8_t* rows, std::int64_t count, std::int64_t cols, std::uint8_t* packed) {
  const BlockTypeInfo& size = block_type_info(type);
  const std::int64_t row_bytes = cols / size.elements * size.bytes;
  std::int64_t done = 0;
  if (packed_layout(type) != nullptr)
    for (; done + kPackedRows <= count; done += kPackedRows)
      pack_sixteen(type, rows + done * row_bytes, kPackedRows, cols, packed + done * row_bytes);
  std::memcpy(packed + done * row_bytes, rows + done * row_bytes, static_cast<std::size_t>((count - done) * row_bytes));
}

void pack_last_rows(BlockType type, const std::uint8_t* rows, std::int64_t count, std::int64_t cols,
                    std::uint8_t* packed) {
  const BlockTypeInfo& size = block_type_info(type);
  std::memset(packed, 0, static_cast<std::size_t>(kPackedRows * (cols / size.elements) * size.bytes));
  pack_sixteen(type, rows, count, cols, packed);
}

}  // namespace tessera
