// Each function below writes the numbers of one block of a GGUF type. The file is compiled without fused multiply-add
// instructions, because gguf-py rounds each product.
#include "tessera/ops/quantised/blocks/dequantise.h"

#include "tessera/base/float8.h"
#include "tessera/ops/quantised/blocks/block_bytes.h"
#include "tessera/ops/quantised/blocks/dequantise_grids.h"

namespace tessera {
namespace {

using namespace block_bytes;  // NOLINT(google-build-using-namespace): only for this file's formulas

// The next functions write blocks of 32 values. Except in Q8_0, the lower halves of bytes have the first 16 values, and
// the upper halves have the other 16.

void q4_0(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(static_cast<int>(nibble(b[2 + i % 16], i / 16)) - 8);
}

void q4_1(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  const float least = f16(b + 2);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(nibble(b[4 + i % 16], i / 16)) + least;
}

void q5_0(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  const std::uint32_t high = u32(b + 2);
  for (int i = 0; i < 32; ++i) {
    const std::uint32_t code = nibble(b[6 + i % 16], i / 16) | (high >> i & 1u) << 4u;
    y[i] = d * static_cast<float>(static_cast<int>(code) - 16);
  }
}

void q5_1(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  const float least = f16(b + 2);
  const std::uint32_t high = u32(b + 4);
  for (int i = 0; i < 32; ++i)
    y[i] = d * static_cast<float>(nibble(b[8 + i % 16], i / 16) | (high >> i & 1u) << 4u) + least;
}

void q8_0(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(static_cast<std::int8_t>(b[2 + i]));
}

void iq4_nl(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  for (int i = 0; i < 32; ++i) y[i] = d * kIq4Numbers[nibble(b[2 + i % 16], i / 16)];
}

void mxfp4(const std::uint8_t* b, float* y) {
  const float d = half_e8m0(b[0]);
  for (int i = 0; i < 32; ++i) y[i] = d * kE2M1Doubled[nibble(b[1 + i % 16], i / 16)];
}

// A block of 64 values: 4 scales, then 4 groups of 16 values. Each group takes 8 bytes. The lower halves of these bytes
// have the group's first 8 values.
void nvfp4(const std::uint8_t* b, float* y) {
  for (int i = 0; i < 64; ++i) {
    const int part = i / 16;
    const std::uint32_t code = b[part] & 0x7fu;
    const float d = code == 0x7f ? 0.0F : 0.5F * number_of_e4m3(code);
    y[i] = d * kE2M1Doubled[nibble(b[4 + part * 8 + i % 8], i % 16 / 8)];
  }
}

// The functions from here on write blocks of 256 values.

void q2_k(const std::uint8_t* b, float* y) {
  const float d = f16(b + 80);
  const float least = f16(b + 82);
  for (int i = 0; i < 256; ++i) {
    const std::uint8_t scales = b[i / 16];
    const std::uint32_t code = b[16 + i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3u;
    y[i] = d * static_cast<float>(scales & 15u) * static_cast<float>(code) - least * static_cast<float>(scales >> 4u);
  }
}

void q3_k(const std::uint8_t* b, float* y) {
  const float d = f16(b + 108);
  for (int i = 0; i < 256; ++i) {
    const auto low = static_cast<int>(b[32 + i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3u);
    const int less = (b[i % 32] >> (i / 32) & 1u) != 0 ? 0 : 4;
    y[i] = d * static_cast<float>(q3_scale(b + 96, i / 16)) * static_cast<float>(low - less);
  }
}

void q4_k(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  const float least = f16(b + 2);
  for (int part = 0; part < 8; ++part) {
    const ScaleAndMinimum of_part = scale_and_minimum(b + 4, part);
    const float scale = d * static_cast<float>(of_part.scale);
    const float minimum = least * static_cast<float>(of_part.minimum);
    for (int i = 0; i < 32; ++i)
      y[part * 32 + i] = scale * static_cast<float>(nibble(b[16 + part / 2 * 32 + i], part % 2)) - minimum;
  }
}

void q5_k(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  const float least = f16(b + 2);
  for (int part = 0; part < 8; ++part) {
    const ScaleAndMinimum of_part = scale_and_minimum(b + 4, part);
    const float scale = d * static_cast<float>(of_part.scale);
    const float minimum = least * static_cast<float>(of_part.minimum);
    for (int i = 0; i < 32; ++i) {
      const std::uint32_t high = b[16 + i] >> part & 1u;
      const std::uint32_t code = nibble(b[48 + part / 2 * 32 + i], part % 2) | high << 4u;
      y[part * 32 + i] = scale * static_cast<float>(code) - minimum;
    }
  }
}

void q6_k(const std::uint8_t* b, float* y) {
  const float d = f16(b + 208);
  for (int i = 0; i < 256; ++i) {
    const std::uint32_t low = nibble(b[i / 128 * 64 + i % 64], i / 64 % 2);
    const std::uint32_t high = b[128 + i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3u;
    const auto scale = static_cast<float>(static_cast<std::int8_t>(b[192 + i / 16]));
    y[i] = d * scale * static_cast<float>(static_cast<int>(low | high << 4u) - 32);
  }
}

void iq4_xs(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  const std::uint32_t high = u16(b + 2);
  for (int part = 0; part < 8; ++part) {
    const float scale = d * static_cast<float>(iq4_scale(b + 4, high, part));
    for (int i = 0; i < 32; ++i) y[part * 32 + i] = scale * kIq4Numbers[nibble(b[8 + part * 16 + i % 16], i / 16)];
  }
}

using Dequantise = void (*)(const std::uint8_t*, float*);

Dequantise function_of(BlockType type) {
  switch (type) {
    case BlockType::kQ4_0: return q4_0;
    case BlockType::kQ4_1: return q4_1;
    case BlockType::kQ5_0: return q5_0;
    case BlockType::kQ5_1: return q5_1;
    case BlockType::kQ8_0: return q8_0;
    case BlockType::kQ2_K: return q2_k;
    case BlockType::kQ3_K: return q3_k;
    case BlockType::kQ4_K: return q4_k;
    case BlockType::kQ5_K: return q5_k;
    case BlockType::kQ6_K: return q6_k;
    case BlockType::kIQ1_S: return dequantise_iq1_s;
    case BlockType::kIQ1_M: return dequantise_iq1_m;
    case BlockType::kIQ2_XXS: return dequantise_iq2_xxs;
    case BlockType::kIQ2_XS: return dequantise_iq2_xs;
    case BlockType::kIQ2_S: return dequantise_iq2_s;
    case BlockType::kIQ3_XXS: return dequantise_iq3_xxs;
    case BlockType::kIQ3_S: return dequantise_iq3_s;
    case BlockType::kIQ4_NL: return iq4_nl;
    case BlockType::kIQ4_XS: return iq4_xs;
    case BlockType::kMXFP4: return mxfp4;
    case BlockType::kNVFP4: return nvfp4;
    default: return nullptr;
  }
}

}  // namespace

bool can_dequantise(BlockType type) { return function_of(type) != nullptr; }

void dequantise(BlockType type, const std::uint8_t* blocks, std::int64_t count, float* y) {
  const Dequantise function = function_of(type);
  const BlockTypeInfo& size = block_type_info(type);
  for (std::int64_t i = 0; i < count; ++i, blocks += size.bytes, y += size.elements) function(blocks, y);
}

}  // namespace tessera
