// Lays out the scratch of moe_experts on the CPU, and chooses between oneDNN and the dot kernel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tessera/device/alignment.h"
#include "tessera/ops/linear/linear_cpu.h"
#include "tessera/ops/linear/onednn_blocks.h"
#include "tessera/ops/moe/moe_blocks_cpu.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera::experts_cpu {

inline constexpr std::int64_t kBlockRows = 240;    // maximum rows of a block; a multiple of the dot kernel's 8 rows
inline constexpr std::int64_t kBlockColumns = 48;  // columns of a block: a multiple of the dot kernel's 24 columns
// The number of columns of a oneDNN block. 64 columns are as fast as 256, and give threads more blocks to share.
inline constexpr std::int64_t kOneDnnColumns = 64;
// oneDNN is faster than the dot kernel if experts have at least this many rows on average.
inline constexpr std::int64_t kLeastOneDnnRows = 64;
static_assert(kBlockRows <= OneDnnBlocks::kMostRows);
inline constexpr std::int64_t kMostTokens = 2048;  // maximum number of tokens computed at a time; it bounds the scratch

// A block of rows of one expert: [first, first + rows) of the rows sorted by expert.
struct RowBlock {
  std::int64_t expert;
  std::int64_t first;
  std::int64_t rows;
};

// Byte offsets of the parts of the scratch.
struct Layout {
  std::size_t size = 0;
  std::size_t ends;       // i32[experts]: one past the last row found so far of each expert
  std::size_t place;      // i32[pairs]: the place of (token, k) among the sorted rows, or -1
  std::size_t row;        // i32[pairs]: the token of each sorted row
  std::size_t blocks;     // RowBlock[maximum number of blocks]
  std::size_t activated;  // [pairs, I], in the layout that the dot kernel reads
  std::size_t outputs;    // X[pairs, H]
  std::size_t workers;    // the parts of the workers, of `worker` bytes each
  std::size_t worker = 0;
  std::size_t worker_x = 0;       // inside a worker's part: input rows, in the layout that the dot kernel reads
  std::size_t worker_gate = 0;    // X[2, kBlockRows, columns of a block]: gate and up, or the results of down
  std::size_t worker_own = 0;     // scratch of the dot kernel or of oneDNN
  std::size_t worker_w = 0;       // X[columns of a block, H or I]: weights as numbers
  std::size_t worker_codes = 0;   // u8[H or I]: the values of one row, one byte for each value
  std::size_t worker_packed = 0;  // scratch of multiply_blocks()
  BlockMemory packed;             // the offsets within worker_packed
};

inline std::size_t take(std::size_t& used, std::int64_t count, std::size_t bytes) {
  const std::size_t at = used;
  used += align_up(static_cast<std::size_t>(count) * bytes);
  return at;
}

// most_pairs() returns an upper bound of the number of pairs (token, expert) that are computed at a time.
// most_block_rows() returns an upper bound of the number of rows in a block.
inline std::int64_t most_pairs(const ExpertsProblem& p) { return std::min(p.tokens, kMostTokens) * p.top_k; }
inline std::int64_t most_block_rows(const ExpertsProblem& p) { return std::min(kBlockRows, most_pairs(p)); }

// Returns whether to use oneDNN. Its blocks are larger, and it is faster than the dot kernel only if experts have
// enough rows on average. oneDNN's sums depend on the number of rows. If inputs may be rounded by block, a tiny
// difference could change how another operator rounds its input (quantised_linear_cpu.cpp).
inline bool takes_onednn(const ExpertsProblem& p, bool deterministic) {
  return !deterministic && !p.rounds_inputs && onednn_takes(p.dtype) &&
         most_pairs(p) >= p.routed_experts * kLeastOneDnnRows;
}

inline OneDnnBlocks::Shape up_shape(const ExpertsProblem& p) {
  return {.columns = kOneDnnColumns, .depth = p.hidden, .dtype = p.dtype, .bias = p.gate_up_bias != nullptr};
}
inline OneDnnBlocks::Shape down_shape(const ExpertsProblem& p) {
  return {.columns = kOneDnnColumns, .depth = p.intermediate, .dtype = p.dtype, .bias = p.down_bias != nullptr};
}

// Lays out the scratch. `onednn_bytes` is the size of oneDNN's scratch for each worker; 0: oneDNN is not used.
inline Layout lay_out(const ExpertsProblem& p, std::int64_t workers, std::size_t onednn_bytes) {
  const std::size_t element = ir::dtype_size(p.dtype);
  const std::size_t read = p.dtype == ir::DType::kFloat16 ? sizeof(float) : element;
  const std::int64_t pairs = most_pairs(p);
  Layout l{};
  l.ends = take(l.size, p.experts, sizeof(std::int32_t));
  l.place = take(l.size, pairs, sizeof(std::int32_t));
  l.row = take(l.size, pairs, sizeof(std::int32_t));
  l.blocks = take(l.size, std::min(p.experts, pairs) + pairs / kBlockRows, sizeof(RowBlock));
  const std::int64_t columns = std::max(kBlockColumns, kOneDnnColumns);
  const std::int64_t rows = OneDnnBlocks::computed_rows(most_block_rows(p));
  // This part has `rows` rows more than there are pairs, because oneDNN may read up to `rows` rows past the end of the
  // last block.
  l.activated = take(l.size, (pairs + rows) * p.intermediate, read);
  l.outputs = take(l.size, pairs * p.hidden, element);
  l.workers = l.size;
  l.worker_x = take(l.worker, rows * p.hidden, read);
  l.worker_gate = take(l.worker, 2 * kBlockRows * columns, element);
  const std::int64_t dot_floats = dot_own_floats(p.dtype, std::max(p.hidden, p.intermediate));
  l.worker_own = take(
      l.worker,
      std::max<std::int64_t>(dot_floats * std::int64_t{sizeof(float)}, static_cast<std::int64_t>(onednn_bytes)), 1);
  const std::int64_t depth = std::max(p.hidden, p.intermediate);
  if (p.mxfp4 || p.quantised) l.worker_w = take(l.worker, columns * depth, element);
  if (p.quantised) l.worker_codes = take(l.worker, depth, 1);
  if (multiplies_blocks(p)) {
    l.packed = block_memory(p, most_block_rows(p));
    l.worker_packed = take(l.worker, static_cast<std::int64_t>(l.packed.size), 1);
  }
  l.size += static_cast<std::size_t>(workers) * l.worker;
  return l;
}

}  // namespace tessera::experts_cpu
