// Computes moe_experts on the CPU if the weights are packed blocks of GGUF. Blocks are multiplied as integers, as in
// quantised_linear (blocks/block_linear.h). This is possible if inputs may be rounded by block, the types of the GGUF
// blocks have a packed layout, and no group of 16 packed rows contains rows of two experts. multiplies_blocks() checks
// these conditions. If one of them is not met, blocks are converted to numbers first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tessera/ops/moe/moe_experts.h"
#include "tessera/ops/quantised/blocks/block_input.h"
#include "tessera/ops/quantised/blocks/block_multiply.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"

namespace tessera::experts_cpu {

inline bool multiplies_blocks(const ExpertsProblem& p) {
  if (!p.rounds_inputs || !p.gate_up_matrix.format.is_blocks()) return false;
  const bool packed =
      packed_layout(p.gate_up_matrix.format.blocks) != nullptr && packed_layout(p.down_matrix.format.blocks) != nullptr;
  return packed && p.intermediate % kPackedRows == 0 && p.hidden % kPackedRows == 0;
}

// Byte offsets in a thread's memory. The inputs (blocks::Input) of a block of rows come first, then sums, then scratch.
struct BlockMemory {
  std::size_t sums = 0;
  std::size_t scratch = 0;
  std::size_t size = 0;
};

inline BlockMemory block_memory(const ExpertsProblem& p, std::int64_t rows) {
  BlockMemory m;
  m.sums = blocks::input_bytes(rows, std::max(p.hidden, p.intermediate));
  m.scratch = m.sums + static_cast<std::size_t>(rows * blocks::kMostMultiplied) * sizeof(float);
  m.size = m.scratch + std::max(blocks::multiply_scratch_bytes(p.gate_up_matrix.blocks()),
                                blocks::multiply_scratch_bytes(p.down_matrix.blocks()));
  return m;
}

// Computes y[rows, columns] = x · wᵀ + bias for the rows [first, first + columns) of w. `bias` points to the bias of
// row `first`, or is null. `own` is the thread's memory with the layout `at`. This memory begins with x, which
// make_inputs() has converted.
template <class T>
void multiply_blocks(const BlockMatrix& w, std::int64_t first, std::int64_t columns, std::int64_t rows, const T* bias,
                     T* y, std::byte* own, const BlockMemory& at) {
  auto* sums = reinterpret_cast<float*>(own + at.sums);
  const blocks::Inputs x{.at = reinterpret_cast<const blocks::Input*>(own), .rows = rows, .parts = w.cols / 32};
  blocks::multiply(w, first, columns, x, 0, rows, sums, own + at.scratch);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      y[r * columns + c] =
          from_float<T>(sums[r * blocks::kMostMultiplied + c] + (bias != nullptr ? to_float(bias[c]) : 0.0F));
}

}  // namespace tessera::experts_cpu
