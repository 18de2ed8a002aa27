// Multiplies packed blocks by integer activations. There is one struct of functions for each instruction set.
//
// The order of a sum does not depend on the number of rows. A step multiplies the columns that share a scale (32 or 16)
// as integers and adds these products exactly. Then the step adds the result to the float32 sum. So a row's bits depend
// neither on the other rows nor on whether codes are unpacked in registers or in memory.
#pragma once

#include <cstdint>

#include "tessera/ops/quantised/blocks/block_input.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"

namespace tessera::blocks {

static_assert(kChunkParts * kPackedColumns == kRecordColumns);

// The unpacked codes of one chunk in sixteen rows, and the scales and minima of these codes as float32 numbers. Byte b
// of codes[p][s][r] is the code of column 32 p + 4 s + b of row r. The first 16 columns of part p have the scales
// scales[p][0], and the last 16 have scales[p][1].
struct Panel {
  alignas(64) std::uint8_t codes[kChunkParts][8][kPackedRows][4];
  alignas(64) float scales[kChunkParts][2][kPackedRows];
  alignas(64) float minima[kChunkParts][kPackedRows];
};

// Says how to read the codes of a panel: a number is scale · (code − offset) − minimum.
struct PanelForm {
  int offset;
  bool is_signed;  // a code is an int8, not a uint8
  bool halves;     // 16 columns share a scale, not 32
  bool minimum;
};

struct BlockKernels {
  const char* name;
  // Multiplies the rows [first, first + count) of x by sixteen packed rows of w. Writes the product of row first + r of
  // x and row n of w to sums[r · stride + n]. Precondition: count <= kMostFewRows.
  void (*few)(BlockType type, const std::uint8_t* w, const Inputs& x, std::int64_t first, std::int64_t count,
              float* sums, std::int64_t stride);
  // Unpacks one record: sixteen rows of one chunk.
  void (*unpack)(BlockType type, const std::uint8_t* record, std::int64_t parts, Panel& to);
  PanelForm (*form)(BlockType type);
  // Adds one chunk's part of the product of row first + r of x and row n of w to sums[r · stride + n], for all r <
  // count.
  void (*add_panel)(BlockType type, const Panel& w, const Inputs& x, std::int64_t chunk, std::int64_t first,
                    std::int64_t count, float* sums, std::int64_t stride);
};
inline constexpr std::int64_t kMostFewRows = 4;

// Returns the functions of the best instruction set that this machine has.
const BlockKernels& block_kernels();

// Each of these functions returns the kernels of one instruction set, or null if the build or the machine does not have
// it.
const BlockKernels* plain_kernels();
const BlockKernels* avx2_kernels();
const BlockKernels* vnni_kernels();

}  // namespace tessera::blocks
