#include "tessera/ops/quantised/blocks/block_codes.h"

#include "tessera/base/float8.h"
#include "tessera/ops/quantised/blocks/block_bytes.h"

namespace tessera {
namespace {

using namespace block_bytes;  // NOLINT(google-build-using-namespace): only for this file's formulas

std::uint8_t signed_code(std::int32_t code) { return static_cast<std::uint8_t>(static_cast<std::int8_t>(code)); }

// Each function below splits one block into codes, scales and offsets (block_codes.h). A block of 32 numbers is one
// group.

void q4_0(const std::uint8_t* b, const BlockCodes& to) {
  to.scales[0] = f16(b);
  for (int i = 0; i < 32; ++i) to.codes[i] = static_cast<std::uint8_t>(nibble(b[2 + i % 16], i / 16));
}

void q4_1(const std::uint8_t* b, const BlockCodes& to) {
  to.scales[0] = f16(b);
  to.offsets[0] = f16(b + 2);
  for (int i = 0; i < 32; ++i) to.codes[i] = static_cast<std::uint8_t>(nibble(b[4 + i % 16], i / 16));
}

std::uint32_t five_bits(const std::uint8_t* low, std::uint32_t high, int i) {
  return nibble(low[i % 16], i / 16) | (high >> i & 1u) << 4u;
}

void q5_0(const std::uint8_t* b, const BlockCodes& to) {
  to.scales[0] = f16(b);
  for (int i = 0; i < 32; ++i)
    to.codes[i] = signed_code(static_cast<std::int32_t>(five_bits(b + 6, u32(b + 2), i)) - 16);
}

void q5_1(const std::uint8_t* b, const BlockCodes& to) {
  to.scales[0] = f16(b);
  to.offsets[0] = f16(b + 2);
  for (int i = 0; i < 32; ++i) to.codes[i] = static_cast<std::uint8_t>(five_bits(b + 8, u32(b + 4), i));
}

void q8_0(const std::uint8_t* b, const BlockCodes& to) {
  to.scales[0] = f16(b);
  std::memcpy(to.codes, b + 2, 32);
}

void iq4_nl(const std::uint8_t* b, const BlockCodes& to) {
  to.scales[0] = f16(b);
  for (int i = 0; i < 32; ++i) to.codes[i] = signed_code(kIq4Numbers[nibble(b[2 + i % 16], i / 16)]);
}

void nvfp4(const std::uint8_t* b, const BlockCodes& to) {
  for (int part = 0; part < 4; ++part) {
    const std::uint32_t code = b[part] & 0x7fu;
    to.scales[part] = code == 0x7f ? 0.0F : 0.5F * number_of_e4m3(code);
  }
  for (int i = 0; i < 64; ++i) to.codes[i] = signed_code(kE2M1Doubled[nibble(b[4 + i / 16 * 8 + i % 8], i % 16 / 8)]);
}

// The functions from here on split blocks of 256 numbers.

std::uint32_t two_bits(const std::uint8_t* b, int i) { return b[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3u; }

void q2_k(const std::uint8_t* b, const BlockCodes& to) {
  for (int part = 0; part < 16; ++part) {
    to.scales[part] = f16(b + 80) * static_cast<float>(b[part] & 15u);
    to.offsets[part] = -f16(b + 82) * static_cast<float>(b[part] >> 4u);
  }
  for (int i = 0; i < 256; ++i) to.codes[i] = static_cast<std::uint8_t>(two_bits(b + 16, i));
}

// Q3_K's integers are −4 to 3. A code is the integer plus 4, so the offset is −4 · scale.
void q3_k(const std::uint8_t* b, const BlockCodes& to) {
  for (int part = 0; part < 16; ++part) {
    to.scales[part] = f16(b + 108) * static_cast<float>(q3_scale(b + 96, part));
    to.offsets[part] = -4 * to.scales[part];
  }
  for (int i = 0; i < 256; ++i)
    to.codes[i] = static_cast<std::uint8_t>(two_bits(b + 32, i) | (b[i % 32] >> (i / 32) & 1u) << 2u);
}

// Writes the scales and offsets of Q4_K and Q5_K.
void long_scales(const std::uint8_t* b, const BlockCodes& to) {
  for (int part = 0; part < 8; ++part) {
    const ScaleAndMinimum of_part = scale_and_minimum(b + 4, part);
    to.scales[part] = f16(b) * static_cast<float>(of_part.scale);
    to.offsets[part] = -f16(b + 2) * static_cast<float>(of_part.minimum);
  }
}

void q4_k(const std::uint8_t* b, const BlockCodes& to) {
  long_scales(b, to);
  for (int i = 0; i < 256; ++i)
    to.codes[i] = static_cast<std::uint8_t>(nibble(b[16 + i / 64 * 32 + i % 32], i / 32 % 2));
}

void q5_k(const std::uint8_t* b, const BlockCodes& to) {
  long_scales(b, to);
  for (int i = 0; i < 256; ++i)
    to.codes[i] = static_cast<std::uint8_t>(nibble(b[48 + i / 64 * 32 + i % 32], i / 32 % 2) |
                                            (b[16 + i % 32] >> (i / 32) & 1u) << 4u);
}

void q6_k(const std::uint8_t* b, const BlockCodes& to) {
  for (int part = 0; part < 16; ++part)
    to.scales[part] = f16(b + 208) * static_cast<float>(static_cast<std::int8_t>(b[192 + part]));
  for (int i = 0; i < 256; ++i) {
    const std::uint32_t code = nibble(b[i / 128 * 64 + i % 64], i / 64 % 2) | two_bits(b + 128, i) << 4u;
    to.codes[i] = signed_code(static_cast<std::int32_t>(code) - 32);
  }
}

void iq4_xs(const std::uint8_t* b, const BlockCodes& to) {
  for (int part = 0; part < 8; ++part)
    to.scales[part] = f16(b) * static_cast<float>(iq4_scale(b + 4, u16(b + 2), part));
  for (int i = 0; i < 256; ++i) to.codes[i] = signed_code(kIq4Numbers[nibble(b[8 + i / 32 * 16 + i % 16], i / 16 % 2)]);
}

struct Split {
  BlockType type;
  QuantisedFormat format;
  void (*split)(const std::uint8_t*, const BlockCodes&);
};

constexpr QuantisedFormat format_of(QuantisedFormat::Values values, std::int64_t group, bool pairs) {
  using Scales = QuantisedFormat::Scales;
  return {.values = values, .scales = pairs ? Scales::kPairs : Scales::kFloat16, .group_rows = 1, .group_cols = group};
}

constexpr auto kInt4 = QuantisedFormat::Values::kInt4;
constexpr auto kInt8 = QuantisedFormat::Values::kInt8;
constexpr Split kSplits[] = {
    {BlockType::kQ4_0, format_of(kInt4, 32, false), q4_0},
    {BlockType::kQ4_1, format_of(kInt4, 32, true), q4_1},
    {BlockType::kQ5_0, format_of(kInt8, 32, false), q5_0},
    {BlockType::kQ5_1, format_of(kInt8, 32, true), q5_1},
    {BlockType::kQ8_0, format_of(kInt8, 32, false), q8_0},
    {BlockType::kQ2_K, format_of(kInt4, 16, true), q2_k},
    {BlockType::kQ3_K, format_of(kInt4, 16, true), q3_k},
    {BlockType::kQ4_K, format_of(kInt4, 32, true), q4_k},
    {BlockType::kQ5_K, format_of(kInt8, 32, true), q5_k},
    {BlockType::kQ6_K, format_of(kInt8, 16, false), q6_k},
    {BlockType::kIQ4_NL, format_of(kInt8, 32, false), iq4_nl},
    {BlockType::kIQ4_XS, format_of(kInt8, 32, false), iq4_xs},
    {BlockType::kNVFP4, format_of(kInt8, 16, false), nvfp4},
};

const Split* find_split(BlockType type) {
  for (const Split& split : kSplits)
    if (split.type == type) return &split;
  return nullptr;
}

}  // namespace

const QuantisedFormat* block_codes_format(BlockType type) {
  const Split* split = find_split(type);
  return split != nullptr ? &split->format : nullptr;
}

void split_blocks(BlockType type, const std::uint8_t* blocks, std::int64_t count, const BlockCodes& to) {
  const Split& split = *find_split(type);
  const BlockTypeInfo& size = block_type_info(type);
  const std::int64_t groups = size.elements / split.format.group_cols;
  const bool pairs = split.format.scales == QuantisedFormat::Scales::kPairs;
  for (std::int64_t i = 0; i < count; ++i)
    split.split(blocks + i * size.bytes, {.codes = to.codes + i * size.elements,
                                          .scales = to.scales + i * groups,
                                          .offsets = pairs ? to.offsets + i * groups : nullptr});
}

}  // namespace tessera
