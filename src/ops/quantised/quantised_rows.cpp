#include "tessera/ops/quantised/quantised_rows.h"

#include <algorithm>

#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/quantised/blocks/packed_rows.h"
#include "tessera/ops/quantised/small_floats.h"

namespace tessera {
namespace {

using Values = QuantisedFormat::Values;

// Converts one value without its scale. `zero` is the zero of int4.
template <Values kValues>
TESSERA_INLINE float convert(std::uint8_t code, float zero) {
  if constexpr (kValues == Values::kE4M3) return number_of_e4m3(code);
  if constexpr (kValues == Values::kInt8) return static_cast<float>(static_cast<std::int8_t>(code));
  if constexpr (kValues == Values::kInt4) return static_cast<float>(code) - zero;
  if constexpr (kValues == Values::kE2M1) return number_of_e2m1(code);
}

// The numbers that the columns of a group share in one row.
struct Group {
  float zero;
  float scale;
  float offset;
};

template <Values kValues, class T>
TESSERA_INLINE void convert_group(const std::uint8_t* codes, T* y, std::int64_t count, const Group& group) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    y[i] = from_float<T>(convert<kValues>(codes[i], group.zero) * group.scale + group.offset);
}

// Writes the two values of each byte to bytes of their own.
TESSERA_CPU_CLONES void split_bytes(const std::uint8_t* packed, std::uint8_t* codes, std::int64_t bytes) {
#pragma omp simd
  for (std::int64_t i = 0; i < bytes; ++i) {
    codes[2 * i] = packed[i] & 15u;
    codes[2 * i + 1] = packed[i] >> 4;
  }
}

TESSERA_INLINE Group group_at(const QuantisedMatrix& m, std::int64_t row, std::int64_t group) {
  const std::int64_t at = row / m.format.group_rows * m.num_groups + group;
  const float scale = stored_scale(m, at);
  const int zero = m.zeros != nullptr ? m.zeros[row * m.num_groups + group] : m.format.default_zero();
  return {.zero = static_cast<float>(zero),
          .scale = m.factor != nullptr ? scale * m.factor[row] : scale,
          .offset = stored_offset(m, at)};
}

template <Values kValues, class T>
TESSERA_CPU_CLONES void convert_row(const QuantisedMatrix& m, std::int64_t row, const std::uint8_t* codes, T* y) {
  if (m.groups != nullptr) {
    for (std::int64_t c = 0; c < m.cols; ++c) {
      const Group group = group_at(m, row, m.groups[c]);
      y[c] = from_float<T>(convert<kValues>(codes[c], group.zero) * group.scale);
    }
    return;
  }
  if (m.format.group_cols == kNvfp4Group && m.cols % kNvfp4Group == 0) {  // a loop of known length becomes one vector
    for (std::int64_t group = 0; group < m.num_groups; ++group)
      convert_group<kValues, T>(codes + group * kNvfp4Group, y + group * kNvfp4Group, kNvfp4Group,
                                group_at(m, row, group));
    return;
  }
  for (std::int64_t group = 0, c = 0; c < m.cols; ++group, c += m.format.group_cols) {
    const std::int64_t count = std::min(m.format.group_cols, m.cols - c);
    convert_group<kValues, T>(codes + c, y + c, count, group_at(m, row, group));
  }
}

}  // namespace

template <class T>
void quantised_rows(const QuantisedMatrix& m, std::int64_t first, std::int64_t count, T* y, std::uint8_t* codes) {
  if (m.format.is_blocks()) return block_rows(m.blocks(), first, count, y);
  for (std::int64_t row = first; row < first + count; ++row, y += m.cols) {
    const std::uint8_t* of_row = m.values + row * m.row_bytes();
    if (m.format.values_of_byte() == 2) {
      split_bytes(of_row, codes, m.row_bytes());
      of_row = codes;
    }
    switch (m.format.values) {
      case Values::kE4M3: convert_row<Values::kE4M3, T>(m, row, of_row, y); break;
      case Values::kInt8: convert_row<Values::kInt8, T>(m, row, of_row, y); break;
      case Values::kInt4: convert_row<Values::kInt4, T>(m, row, of_row, y); break;
      case Values::kE2M1: convert_row<Values::kE2M1, T>(m, row, of_row, y); break;
      case Values::kBlocks: break;
    }
  }
}

template void quantised_rows(const QuantisedMatrix&, std::int64_t, std::int64_t, float*, std::uint8_t*);
template void quantised_rows(const QuantisedMatrix&, std::int64_t, std::int64_t, BFloat16*, std::uint8_t*);
template void quantised_rows(const QuantisedMatrix&, std::int64_t, std::int64_t, Float16*, std::uint8_t*);

}  // namespace tessera
