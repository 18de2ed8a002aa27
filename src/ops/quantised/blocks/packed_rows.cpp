// Converts rows of packed and of plain blocks to numbers. The file is compiled without fused multiply-add instructions,
// like dequantise.cpp, so that the two files make numbers with the same bits.
#include "tessera/ops/quantised/blocks/packed_rows.h"

#include <algorithm>
#include <cstring>

#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/quantised/blocks/block_kernels.h"
#include "tessera/ops/quantised/blocks/dequantise.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"

namespace tessera {
namespace {

constexpr std::int64_t kMostElements = 256;  // number of elements in the largest block

template <class T>
TESSERA_CPU_CLONES void store_numbers(const float* numbers, std::int64_t count, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = from_float<T>(numbers[i]);
}

// Writes the numbers of a row of blocks that are not packed.
template <class T>
void plain_row(const BlockMatrix& m, const std::uint8_t* blocks, T* y) {
  const BlockTypeInfo& info = block_type_info(m.type);
  float numbers[kMostElements];
  for (std::int64_t c = 0; c < m.cols; c += info.elements, blocks += info.bytes) {
    dequantise(m.type, blocks, 1, numbers);
    store_numbers(numbers, info.elements, y + c);
  }
}

// Writes the numbers of one row of a panel, in `parts` parts of 32 columns.
template <class T>
TESSERA_CPU_CLONES void panel_row(const blocks::Panel& panel, const blocks::PanelForm& form, std::int64_t row,
                                  std::int64_t parts, T* y) {
  for (std::int64_t part = 0; part < parts; ++part, y += kPackedColumns) {
    std::uint8_t codes[kPackedColumns];
    for (std::int64_t s = 0; s < 8; ++s) std::memcpy(codes + 4 * s, panel.codes[part][s][row], 4);
    const float minimum = form.minimum ? panel.minima[part][row] : 0.0F;
    for (std::int64_t half = 0; half < 2; ++half) {
      const float scale = panel.scales[part][form.halves ? half : 0][row];
#pragma omp simd
      for (std::int64_t i = half * 16; i < half * 16 + 16; ++i) {
        const std::int32_t code = form.is_signed ? static_cast<std::int8_t>(codes[i]) : codes[i];
        const float number = scale * static_cast<float>(code - form.offset);
        y[i] = from_float<T>(form.minimum ? number - minimum : number);
      }
    }
  }
}

// Writes the numbers of the rows [first, end) of sixteen packed rows.
template <class T>
void packed_rows(const BlockMatrix& m, const std::uint8_t* sixteen, std::int64_t first, std::int64_t end, T* y) {
  const blocks::BlockKernels& kernels = blocks::block_kernels();
  const blocks::PanelForm form = kernels.form(m.type);
  const BlockTypeInfo& info = block_type_info(m.type);
  blocks::Panel panel;
  for (std::int64_t c = 0; c < m.cols; c += kRecordColumns) {
    const std::int64_t columns = std::min(kRecordColumns, m.cols - c);
    kernels.unpack(m.type, sixteen + kPackedRows * (c / info.elements * info.bytes), columns / kPackedColumns, panel);
    for (std::int64_t r = first; r < end; ++r)
      panel_row(panel, form, r, columns / kPackedColumns, y + (r - first) * m.cols + c);
  }
}

}  // namespace

template <class T>
void block_rows(const BlockMatrix& m, std::int64_t first, std::int64_t count, T* y) {
  const std::int64_t packed = packed_layout(m.type) != nullptr ? m.rows / kPackedRows * kPackedRows : 0;
  const std::int64_t row_bytes = m.row_bytes();
  const std::int64_t last = first + count;
  while (first < last) {
    if (first >= packed) {
      plain_row(m, m.data + first * row_bytes, y);
      ++first;
      y += m.cols;
      continue;
    }
    const std::int64_t sixteen = first / kPackedRows * kPackedRows;
    const std::int64_t end = std::min(last, sixteen + kPackedRows);
    packed_rows(m, m.data + sixteen * row_bytes, first - sixteen, end - sixteen, y);
    y += (end - first) * m.cols;
    first = end;
  }
}

template void block_rows(const BlockMatrix&, std::int64_t, std::int64_t, float*);
template void block_rows(const BlockMatrix&, std::int64_t, std::int64_t, BFloat16*);
template void block_rows(const BlockMatrix&, std::int64_t, std::int64_t, Float16*);

}  // namespace tessera
