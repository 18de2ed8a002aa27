// Where the CPU's moe_experts keeps what lies between its steps, and by which kernel it multiplies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tessera/device/alignment.h"
#include "tessera/ops/linear/linear_cpu.h"
#include "tessera/ops/linear/onednn_blocks.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera::experts_cpu {

inline constexpr std::int64_t kBlockRows = 240;       // a multiple of the dot kernel's 8 rows
inline constexpr std::int64_t kBlockColumns = 48;     // a multiple of its 24 columns
inline constexpr std::int64_t kOneDnnColumns = 64;    // as fast as 256, and more blocks to share
inline constexpr std::int64_t kLeastOneDnnRows = 64;  // of an expert: fewer are as fast by the dot kernel
static_assert(kBlockRows <= OneDnnBlocks::kMostRows);
inline constexpr std::int64_t kMostTokens = 2048;  // at a time: bounds the scratch

// Rows [first, first + rows) in the order of experts.
struct RowBlock {
  std::int64_t expert;
  std::int64_t first;
  std::int64_t rows;
};

// Where the parts of the scratch begin, in bytes.
struct Layout {
  std::size_t size = 0;
  std::size_t ends;       // i32[experts]: past an expert's last row so far
  std::size_t place;      // i32[pairs]: of (token, k) in the order of experts, or -1
  std::size_t row;        // i32[pairs]: the token at that place
  std::size_t blocks;     // RowBlock[⌈…⌉]
  std::size_t activated;  // [pairs, I], as the dot kernel reads rows
  std::size_t outputs;    // X[pairs, H]
  std::size_t workers;    // `worker` bytes each
  std::size_t worker = 0;
  std::size_t worker_x = 0;     // in it: rows of x, as the dot kernel reads them
  std::size_t worker_gate = 0;  // X[2, kBlockRows, columns of a block]: gate and up, or oneDNN's of down
  std::size_t worker_own = 0;   // the dot kernel's, or oneDNN's
  std::size_t worker_w = 0;     // X[columns of a block, H or I]: weights that were mxfp4
};

inline std::size_t take(std::size_t& used, std::int64_t count, std::size_t bytes) {
  const std::size_t at = used;
  used += align_up(static_cast<std::size_t>(count) * bytes);
  return at;
}

// Of tokens and their experts at a time; rows of one block.
inline std::int64_t most_pairs(const ExpertsProblem& p) { return std::min(p.tokens, kMostTokens) * p.top_k; }
inline std::int64_t most_block_rows(const ExpertsProblem& p) { return std::min(kBlockRows, most_pairs(p)); }

// Whether experts have so many rows that oneDNN multiplies the larger blocks.
inline bool takes_onednn(const ExpertsProblem& p, bool deterministic) {
  return !deterministic && onednn_takes(p.dtype) && most_pairs(p) >= p.routed_experts * kLeastOneDnnRows;
}

inline OneDnnBlocks::Shape up_shape(const ExpertsProblem& p) {
  return {.columns = kOneDnnColumns, .depth = p.hidden, .dtype = p.dtype, .bias = p.gate_up_bias != nullptr};
}
inline OneDnnBlocks::Shape down_shape(const ExpertsProblem& p) {
  return {.columns = kOneDnnColumns, .depth = p.intermediate, .dtype = p.dtype, .bias = p.down_bias != nullptr};
}

// `onednn_bytes`: of oneDNN's scratch for each worker; 0: it is not used.
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
  l.activated = take(l.size, (pairs + rows) * p.intermediate, read);  // a block may read so many past its own
  l.outputs = take(l.size, pairs * p.hidden, element);
  l.workers = l.size;
  l.worker_x = take(l.worker, rows * p.hidden, read);
  l.worker_gate = take(l.worker, 2 * kBlockRows * columns, element);
  const std::int64_t dot_floats = dot_own_floats(p.dtype, std::max(p.hidden, p.intermediate));
  l.worker_own = take(
      l.worker,
      std::max<std::int64_t>(dot_floats * std::int64_t{sizeof(float)}, static_cast<std::int64_t>(onednn_bytes)), 1);
  if (p.mxfp4) l.worker_w = take(l.worker, columns * std::max(p.hidden, p.intermediate), element);
  l.size += static_cast<std::size_t>(workers) * l.worker;
  return l;
}

}  // namespace tessera::experts_cpu
