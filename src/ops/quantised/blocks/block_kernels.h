// The products of packed blocks with integer activations: one struct of functions for each instruction set.
//
// Every sum is taken in one order, whatever the number of rows: 32 columns (or 16) after 32 columns, first their
// integer products, which are exact, then one step in float32. So a row's bits do not depend on the other rows, nor on
// whether codes are unpacked in registers or in memory.
#pragma once

#include <cstdint>

#include "tessera/ops/quantised/blocks/block_input.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"

namespace tessera::blocks {

static_assert(kChunkParts * kPackedColumns == kRecordColumns);

// Unpacked codes of sixteen rows and one chunk, with their scales and minima as numbers. Byte b of codes[p][s][r] is
// column 32 p + 4 s + b of row r; scales[p][h] are those of the first or the last 16 of 32 columns.
struct Panel {
  alignas(64) std::uint8_t codes[kChunkParts][8][kPackedRows][4];
  alignas(64) float scales[kChunkParts][2][kPackedRows];
  alignas(64) float minima[kChunkParts][kPackedRows];
};

// What the codes of a panel are: a number is scale · (code − offset) − minimum.
struct PanelForm {
  int offset;
  bool is_signed;  // a code is an int8, not a uint8
  bool halves;     // 16 columns share a scale, not 32
  bool minimum;
};

struct BlockKernels {
  const char* name;
  // Multiplies the rows [first, first + count) of x, count <= kMostFewRows, by sixteen packed rows: sums[r · stride +
  // n] for n < 16.
  void (*few)(BlockType type, const std::uint8_t* w, const Inputs& x, std::int64_t first, std::int64_t count,
              float* sums, std::int64_t stride);
  // Unpacks one record: sixteen rows of one chunk.
  void (*unpack)(BlockType type, const std::uint8_t* record, std::int64_t parts, Panel& to);
  PanelForm (*form)(BlockType type);
  // Adds the products of one chunk of the rows [first, first + count) of x to sums[r · stride + n].
  void (*add_panel)(BlockType type, const Panel& w, const Inputs& x, std::int64_t chunk, std::int64_t first,
                    std::int64_t count, float* sums, std::int64_t stride);
};
inline constexpr std::int64_t kMostFewRows = 4;

// Returns the functions for this machine.
const BlockKernels& block_kernels();

// The functions of one instruction set; null where the build or the machine does not have it.
const BlockKernels* plain_kernels();
const BlockKernels* avx2_kernels();
const BlockKernels* vnni_kernels();

}  // namespace tessera::blocks
