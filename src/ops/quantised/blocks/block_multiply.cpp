#include "tessera/ops/quantised/blocks/block_multiply.h"

#include <algorithm>

#include "tessera/ops/quantised/blocks/block_kernels.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"

namespace tessera::blocks {
namespace {

// Up to this number of rows of x, codes are unpacked in registers, once for each kMostFewRows rows. For more rows, they
// are unpacked to memory in the L1 cache, and eight rows at a time are multiplied from there.
constexpr std::int64_t kMostInRegisters = 2 * kMostFewRows;
constexpr std::int64_t kTileRows = 8;
constexpr std::int64_t kMostSixteens = kMostMultiplied / kPackedRows;

}  // namespace

std::size_t multiply_scratch_bytes(const BlockMatrix& w) {
  const std::int64_t last = w.rows % kPackedRows == 0 ? 0 : kPackedRows * w.row_bytes();
  return static_cast<std::size_t>(last) / 64 * 64 + 64 + kMostSixteens * sizeof(Panel);
}

void multiply(const BlockMatrix& w, std::int64_t first, std::int64_t count, const Inputs& x, std::int64_t row,
              std::int64_t rows, float* sums, std::byte* scratch) {
  const BlockKernels& kernels = block_kernels();
  auto* panels = reinterpret_cast<Panel*>(scratch);
  auto* last = reinterpret_cast<std::uint8_t*>(scratch + kMostSixteens * sizeof(Panel));
  const std::int64_t sixteens = (count + kPackedRows - 1) / kPackedRows;
  const std::int64_t row_bytes = w.row_bytes();
  const std::uint8_t* packed[kMostSixteens];
  for (std::int64_t i = 0; i < sixteens; ++i) {
    const std::int64_t at = first + i * kPackedRows;
    packed[i] = w.data + at * row_bytes;
    if (at + kPackedRows <= w.rows) continue;
    pack_last_rows(w.type, packed[i], w.rows - at, w.cols, last);
    packed[i] = last;
  }
  if (rows <= kMostInRegisters) {
    for (std::int64_t i = 0; i < sixteens; ++i)
      for (std::int64_t r = 0; r < rows; r += kMostFewRows)
        kernels.few(w.type, packed[i], x, row + r, std::min(kMostFewRows, rows - r),
                    sums + r * kMostMultiplied + i * kPackedRows, kMostMultiplied);
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r) std::fill_n(sums + r * kMostMultiplied, sixteens * kPackedRows, 0.0F);
  const BlockTypeInfo& info = block_type_info(w.type);
  for (std::int64_t chunk = 0; chunk * kChunkParts < x.parts; ++chunk) {
    const std::int64_t record = kPackedRows * (chunk * kRecordColumns / info.elements * info.bytes);
    for (std::int64_t i = 0; i < sixteens; ++i)
      kernels.unpack(w.type, packed[i] + record, std::min<std::int64_t>(kChunkParts, x.parts - chunk * kChunkParts),
                     panels[i]);
    for (std::int64_t r = 0; r < rows; r += kTileRows)
      for (std::int64_t i = 0; i < sixteens; ++i)
        kernels.add_panel(w.type, panels[i], x, chunk, row + r, std::min(kTileRows, rows - r),
                          sums + r * kMostMultiplied + i * kPackedRows, kMostMultiplied);
  }
}

}  // namespace tessera::blocks
