#include "tessera/model/rounding/quantise_values.h"

#include <algorithm>
#include <bit>

#include "tessera/base/cpu_clones.h"
#include "tessera/base/float8.h"

namespace tessera {
namespace {

using RoundedTo = Rounding::Values;

constexpr float kGreatestE4M3 = 448.0F;
constexpr float kSmallestE4M3 = 0x1p-9F;
constexpr float kGreatestE2M1 = 6.0F;
// Loops for blocks of this size are compiled separately, because the overhead of a general loop exceeds the work on
// such a short block.
constexpr std::int64_t kSmallBlock = 16;

TESSERA_INLINE std::uint32_t sign_of(float x) { return std::bit_cast<std::uint32_t>(x) >> 31; }

// Rounds to the nearest integer. Adding 1.5 · 2^23 leaves this integer in the low bits of the float.
TESSERA_INLINE std::int32_t nearest_integer(float x) {
  constexpr float kBase = 0x1.8p23F;
  return std::bit_cast<std::int32_t>(x + kBase) - std::bit_cast<std::int32_t>(kBase);
}

// The following structs, one for each format, round quotients. round() returns the bits that are stored for a quotient.
struct ToE4M3 {
  TESSERA_INLINE static std::uint32_t round(float q) { return from_float<Float8E4M3>(q).bits; }
};
struct ToInt8 {
  TESSERA_INLINE static std::uint32_t round(float q) {
    return static_cast<std::uint32_t>(nearest_integer(std::clamp(q, -127.0F, 127.0F))) & 0xffu;
  }
};
struct ToInt4 {
  TESSERA_INLINE static std::uint32_t round(float q) {
    return static_cast<std::uint32_t>(nearest_integer(std::clamp(q, -8.0F, 7.0F)) + 8);
  }
};
// Finds the nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6 by comparison with the midpoints between them. A tie goes to the
// even code.
struct ToE2M1 {
  TESSERA_INLINE static std::uint32_t round(float q) {
    const float m = std::bit_cast<float>(std::bit_cast<std::uint32_t>(q) & 0x7fffffffu);
    const std::uint32_t code = std::uint32_t{m > 0.25F} + std::uint32_t{m >= 0.75F} + std::uint32_t{m > 1.25F} +
                               std::uint32_t{m >= 1.75F} + std::uint32_t{m > 2.5F} + std::uint32_t{m >= 3.5F} +
                               std::uint32_t{m > 5.0F};
    return code | sign_of(q) << 3;
  }
};

TESSERA_INLINE float one_if_zero(float scale) { return scale > 0 ? scale : 1.0F; }

TESSERA_CPU_CLONES void divide_all(const std::uint32_t* greatest, float by, float* scales, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) scales[i] = one_if_zero(std::bit_cast<float>(greatest[i]) / by);
}

TESSERA_CPU_CLONES void small_scales(const std::uint32_t* greatest, float factor, float* scales, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float scale = to_float(from_float<Float8E4M3>(std::bit_cast<float>(greatest[i]) / kGreatestE2M1 / factor));
    scales[i] = scale < kSmallestE4M3 ? kSmallestE4M3 : scale;
  }
}

template <class To>
TESSERA_CPU_CLONES void round_all(const float* x, const float* divisors, std::uint8_t* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<std::uint8_t>(To::round(x[i] / divisors[i]));
}

TESSERA_CPU_CLONES void raise_all(const float* x, std::uint32_t* greatest, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu;
    greatest[i] = greatest[i] < bits ? bits : greatest[i];
  }
}

// raise_blocks() does the work of raise_to_columns(), and spread_blocks() that of spread_scales(), for `count` whole
// blocks. A block has kBlock columns, or `block` columns if kBlock is 0.
template <std::int64_t kBlock>
TESSERA_CPU_CLONES void raise_blocks(const std::uint32_t* bits, std::int64_t block, std::uint32_t* of_blocks,
                                     std::int64_t count) {
  const std::int64_t size = kBlock > 0 ? kBlock : block;
  for (std::int64_t b = 0; b < count; ++b) {
    std::uint32_t greatest = of_blocks[b];
    for (std::int64_t i = 0; i < size; ++i) greatest = greatest < bits[b * size + i] ? bits[b * size + i] : greatest;
    of_blocks[b] = greatest;
  }
}

template <std::int64_t kBlock>
TESSERA_CPU_CLONES void spread_blocks(const float* scales, float factor, std::int64_t block, float* divisors,
                                      std::int64_t count) {
  const std::int64_t size = kBlock > 0 ? kBlock : block;
  for (std::int64_t b = 0; b < count; ++b) {
    const float divisor = scales[b] * factor;
    for (std::int64_t i = 0; i < size; ++i) divisors[b * size + i] = divisor;
  }
}

// Splits `count` columns at the ends of blocks. The first column has index `first` within its block. The first `head`
// columns complete that block. Then come `whole` whole blocks, and the first `tail` columns of one more block.
struct BlockCut {
  BlockCut(std::int64_t first, std::int64_t block, std::int64_t count)
      : head(first == 0 ? 0 : std::min(block - first, count)),
        whole((count - head) / block),
        tail(count - head - whole * block),
        first_whole(head > 0 ? 1 : 0) {}
  std::int64_t head;
  std::int64_t whole;
  std::int64_t tail;
  std::int64_t first_whole;  // index of the first whole block
};

TESSERA_CPU_CLONES void pack_all(const std::uint8_t* values, std::uint8_t* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = static_cast<std::uint8_t>(values[2 * i] | static_cast<std::uint32_t>(values[2 * i + 1]) << 4);
}

}  // namespace

void raise_to_magnitudes(std::span<const float> x, std::span<std::uint32_t> greatest) {
  raise_all(x.data(), greatest.data(), std::ssize(x));
}

void raise_to_columns(std::span<const std::uint32_t> bits, std::int64_t first, std::int64_t block,
                      std::span<std::uint32_t> of_blocks) {
  const BlockCut cut(first, block, std::ssize(bits));
  const std::uint32_t* from = bits.data() + cut.head;
  std::uint32_t* to = of_blocks.data() + cut.first_whole;
  if (cut.head > 0) raise_blocks<0>(bits.data(), cut.head, of_blocks.data(), 1);
  (block == kSmallBlock ? raise_blocks<kSmallBlock> : raise_blocks<0>)(from, block, to, cut.whole);
  if (cut.tail > 0) raise_blocks<0>(from + cut.whole * block, cut.tail, to + cut.whole, 1);
}

void spread_scales(std::span<const float> scales, float factor, std::int64_t first, std::int64_t block,
                   std::span<float> divisors) {
  const BlockCut cut(first, block, std::ssize(divisors));
  float* to = divisors.data() + cut.head;
  const float* from = scales.data() + cut.first_whole;
  if (cut.head > 0) spread_blocks<0>(scales.data(), factor, cut.head, divisors.data(), 1);
  (block == kSmallBlock ? spread_blocks<kSmallBlock> : spread_blocks<0>)(from, factor, block, to, cut.whole);
  if (cut.tail > 0) spread_blocks<0>(from + cut.whole, factor, cut.tail, to + cut.whole * block, 1);
}

float matrix_factor(RoundedTo values, float greatest) {
  return values == RoundedTo::kE2M1 ? one_if_zero(greatest / (kGreatestE4M3 * kGreatestE2M1)) : 1.0F;
}

void block_scales(RoundedTo values, std::span<const std::uint32_t> greatest, float factor, std::span<float> scales) {
  const auto count = std::ssize(greatest);
  switch (values) {
    case RoundedTo::kE4M3: return divide_all(greatest.data(), kGreatestE4M3, scales.data(), count);
    case RoundedTo::kInt8: return divide_all(greatest.data(), 127.0F, scales.data(), count);
    case RoundedTo::kInt4: return divide_all(greatest.data(), 7.0F, scales.data(), count);
    case RoundedTo::kE2M1: return small_scales(greatest.data(), factor, scales.data(), count);
    case RoundedTo::kBlocks: return;  // numbers are never rounded to GGUF blocks while they are read
  }
}

void round_values(RoundedTo values, std::span<const float> x, std::span<const float> divisors,
                  std::span<std::uint8_t> to) {
  const auto count = std::ssize(x);
  switch (values) {
    case RoundedTo::kE4M3: return round_all<ToE4M3>(x.data(), divisors.data(), to.data(), count);
    case RoundedTo::kInt8: return round_all<ToInt8>(x.data(), divisors.data(), to.data(), count);
    case RoundedTo::kInt4: return round_all<ToInt4>(x.data(), divisors.data(), to.data(), count);
    case RoundedTo::kE2M1: return round_all<ToE2M1>(x.data(), divisors.data(), to.data(), count);
    case RoundedTo::kBlocks: return;
  }
}

void pack_pairs(std::span<const std::uint8_t> values, std::span<std::byte> to) {
  pack_all(values.data(), reinterpret_cast<std::uint8_t*>(to.data()), std::ssize(to));
}

}  // namespace tessera
