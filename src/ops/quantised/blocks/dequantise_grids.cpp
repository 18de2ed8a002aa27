// Converts blocks of GGUF's IQ1, IQ2 and IQ3 types to numbers. A block of these types consists of signs, scales, and
// indices into a code book. The file is compiled without fused multiply-add instructions, as dequantise.cpp is.
#include "tessera/ops/quantised/blocks/dequantise_grids.h"

#include <bit>

#include "tessera/ops/quantised/blocks/block_bytes.h"
#include "tessera/ops/quantised/blocks/block_grids.h"

namespace tessera {
namespace {

using namespace block_bytes;  // NOLINT(google-build-using-namespace): only for this file's formulas

// Returns eight signs from seven: the last one makes the number of negative signs even.
std::uint32_t signs_of(std::uint32_t seven) {
  return seven | (static_cast<std::uint32_t>(std::popcount(seven)) & 1u) << 7u;
}

// Writes eight numbers of IQ2. `entry` is the entry of the code book.
void write_iq2(std::uint16_t entry, std::uint32_t signs, float scale, float* y) {
  for (int i = 0; i < 8; ++i) {
    const float number = scale * kIq2Numbers[entry >> (2 * i) & 3u];
    y[i] = (signs >> i & 1u) != 0 ? -number : number;
  }
}

// Writes four numbers of IQ3.
void write_iq3(std::uint16_t entry, const float (&numbers)[8], std::uint32_t signs, float scale, float* y) {
  for (int i = 0; i < 4; ++i) {
    const float number = scale * numbers[entry >> (4 * i) & 7u];
    y[i] = (signs >> i & 1u) != 0 ? -number : number;
  }
}

// Writes eight numbers of IQ1: the numbers of the code book, shifted up or down by 1/8, times the scale.
void write_iq1(std::uint32_t index, bool down, float scale, float* y) {
  const std::uint16_t entry = kIq1Grid[index];
  for (int i = 0; i < 8; ++i) y[i] = scale * (kIq1Numbers[entry >> (2 * i) & 3u] + (down ? -0.125F : 0.125F));
}

// Returns the scale that a code of four bits stands for in IQ2.
float iq2_scale(float d, std::uint32_t code) { return d * (0.5F + static_cast<float>(code)) * 0.25F; }

}  // namespace

void dequantise_iq1_s(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  for (int part = 0; part < 8; ++part) {
    const std::uint32_t high = u16(b + 34 + 2 * part);
    const float scale = d * static_cast<float>(2 * (high >> 12u & 7u) + 1);
    for (int i = 0; i < 4; ++i, y += 8)
      write_iq1(b[2 + part * 4 + i] | (high >> (3 * i) & 7u) << 8u, (high & 0x8000u) != 0, scale, y);
  }
}

void dequantise_iq1_m(const std::uint8_t* b, float* y) {
  const std::uint8_t* scales = b + 48;
  // The block's float16 scale is cut into four parts of four bits. Each part is the upper bits of one of the four words
  // of scales.
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<std::uint32_t>(u16(scales + 2 * i) >> 12u) << (4 * i);
  const float d = to_float(Float16{static_cast<std::uint16_t>(bits)});
  for (int i = 0; i < 32; ++i, y += 8) {
    const std::uint32_t high = nibble(b[32 + i / 2], i % 2);
    const std::uint32_t code = u16(scales + i / 8 * 2) >> (3 * (i / 2 % 4)) & 7u;
    write_iq1(b[i] | (high & 7u) << 8u, (high & 8u) != 0, d * static_cast<float>(2 * code + 1), y);
  }
}

void dequantise_iq2_xxs(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  for (int part = 0; part < 8; ++part) {
    const std::uint8_t* indices = b + 2 + part * 8;
    const std::uint32_t rest = u32(indices + 4);
    const float scale = iq2_scale(d, rest >> 28u);
    for (int i = 0; i < 4; ++i, y += 8) write_iq2(kIq2XxsGrid[indices[i]], signs_of(rest >> (7 * i) & 127u), scale, y);
  }
}

void dequantise_iq2_xs(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  for (int i = 0; i < 32; ++i, y += 8) {
    const std::uint32_t code = u16(b + 2 + 2 * i);
    write_iq2(kIq2XsGrid[code & 511u], signs_of(code >> 9u), iq2_scale(d, nibble(b[66 + i / 4], i / 2 % 2)), y);
  }
}

void dequantise_iq2_s(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  for (int i = 0; i < 32; ++i, y += 8) {
    const std::uint32_t high = b[66 + i / 4] >> (2 * (i % 4)) & 3u;
    write_iq2(kIq2SGrid[b[2 + i] | high << 8u], b[34 + i], iq2_scale(d, nibble(b[74 + i / 4], i / 2 % 2)), y);
  }
}

void dequantise_iq3_xxs(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  for (int part = 0; part < 8; ++part) {
    const std::uint32_t rest = u32(b + 66 + 4 * part);
    const float scale = d * (0.5F + static_cast<float>(rest >> 28u)) * 0.5F;
    for (int i = 0; i < 8; ++i, y += 4) {
      const std::uint32_t signs = signs_of(rest >> (7 * (i / 2)) & 127u) >> (4 * (i % 2));
      write_iq3(kIq3XxsGrid[b[2 + part * 8 + i]], kIq3XxsNumbers, signs, scale, y);
    }
  }
}

void dequantise_iq3_s(const std::uint8_t* b, float* y) {
  const float d = f16(b);
  for (int part = 0; part < 8; ++part) {
    const float scale = d * static_cast<float>(1 + 2 * nibble(b[106 + part / 2], part % 2));
    for (int i = 0; i < 8; ++i, y += 4) {
      const std::uint32_t index = b[2 + part * 8 + i] | (b[66 + part] >> i & 1u) << 8u;
      const std::uint32_t signs = b[74 + part * 4 + i / 2] >> (4 * (i % 2));
      write_iq3(kIq3SGrid[index], kIq3SNumbers, signs, scale, y);
    }
  }
}

}  // namespace tessera
