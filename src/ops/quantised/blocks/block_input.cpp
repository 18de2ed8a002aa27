#include "tessera/ops/quantised/blocks/block_input.h"

#include <bit>
#include <limits>

#include "tessera/base/ceil_div.h"
#include "tessera/ops/cpu/cpu_math.h"

namespace tessera::blocks {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000u;

template <class T>
TESSERA_CPU_CLONES void make(const T* x, std::int64_t parts, std::int64_t chunk_stride, Input* to) {
  for (std::int64_t part = 0; part < parts; ++part, x += 32) {
    float values[32];
    // Magnitudes are compared by their bits, because these bits, read as integers, have the same order as the
    // magnitudes. The bits of infinities and NaN are greater than those of all numbers.
    std::uint32_t greatest = 0;
#pragma omp simd reduction(max : greatest)
    for (int i = 0; i < 32; ++i) {
      values[i] = to_float(x[i]);
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu;
      greatest = greatest < magnitude ? magnitude : greatest;
    }
    const bool finite = greatest < kInfinity;  // false also if a value is NaN
    const float scale = std::bit_cast<float>(greatest) / 127.0F;
    const float inverse = finite && scale >= std::numeric_limits<float>::min() ? 1.0F / scale : 0.0F;
    Input& input = to[part / kChunkParts * chunk_stride + part % kChunkParts];
    std::int32_t sums[2] = {0, 0};
    for (int half = 0; half < 2; ++half) {
      std::int32_t sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int i = 0; i < 16; ++i) {
        // Adding 1.5 · 2^23 rounds to an integer, which the low bits of the sum hold.
        const float shifted = (finite ? values[half * 16 + i] : 0.0F) * inverse + 12582912.0F;
        const std::int32_t value = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(12582912.0F);
        input.values[half * 16 + i] = static_cast<std::int8_t>(value);
        sum += value;
      }
      sums[half] = sum;
    }
    input.scale = finite ? scale : std::bit_cast<float>(0x7fc00000u);
    input.sum = input.scale * static_cast<float>(sums[0] + sums[1]);
    input.minus_sum = -sums[0] - sums[1];
    input.minus_halves[0] = -sums[0];
    input.minus_halves[1] = -sums[1];
  }
}

}  // namespace

std::size_t input_bytes(std::int64_t rows, std::int64_t cols) {
  const std::int64_t chunks = ceil_div(cols / 32, std::int64_t{kChunkParts});
  return static_cast<std::size_t>(chunks * rows * kChunkParts) * sizeof(Input);
}

void make_inputs(const std::byte* x, ir::DType dtype, std::int64_t cols, std::int64_t rows, std::int64_t row,
                 Input* to) {
  to += row * kChunkParts;
  const std::int64_t stride = rows * kChunkParts;
  switch (dtype) {
    case ir::DType::kBFloat16: return make(reinterpret_cast<const BFloat16*>(x), cols / 32, stride, to);
    case ir::DType::kFloat16: return make(reinterpret_cast<const Float16*>(x), cols / 32, stride, to);
    default: return make(reinterpret_cast<const float*>(x), cols / 32, stride, to);
  }
}

}  // namespace tessera::blocks
