// Computes head_linear on the CPU. A work item is one head, a strip of 64 columns and up to 96 rows. A worker converts
// the item's parts of w and x to float32, block by block, and multiplies the blocks. Every output element adds its
// products in the order of k, whatever the number of rows.
#include "tessera/ops/latent/head_linear.h"

#include <algorithm>
#include <atomic>

#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/cpu_vector.h"
#include "tessera/ops/linear/cpu_gemm.h"

namespace tessera {
namespace {

constexpr std::int64_t kStripColumns = 64;
constexpr std::int64_t kBlockRows = 96;
constexpr std::int64_t kBlockDepth = 512;  // indices of k in a block; a block of w takes 512 · 64 · 4 bytes = 128 KiB

// One worker's scratch memory, in floats.
struct Scratch {
  explicit Scratch(float* base) : w(base), x(w + kBlockDepth * kStripColumns), sums(x + kBlockRows * kBlockDepth) {}
  static constexpr std::int64_t kFloats =
      kBlockDepth * kStripColumns + kBlockRows * kBlockDepth + kBlockRows * kStripColumns;
  float* w;     // [kBlockDepth, kStripColumns]
  float* x;     // [kBlockRows, kBlockDepth]
  float* sums;  // [kBlockRows, kStripColumns]
};

// A strip of columns and a block of rows of one head.
struct Item {
  std::int64_t head;
  std::int64_t column;
  std::int64_t columns;
  std::int64_t row;
  std::int64_t rows;
};

// Copies `count` rows of a transposed w, from row `depth` on, to the rows 0 … count - 1 of `block`. The columns begin
// at item.column. Columns past the item's last column become zeros.
template <class T>
TESSERA_INLINE void copy_weights(const HeadLinearProblem& p, const Item& item, std::int64_t depth, std::int64_t count,
                                 float* block) {
  const T* w = reinterpret_cast<const T*>(p.w) + (item.head * p.k + depth) * p.n + item.column;
  for (std::int64_t d = 0; d < count; ++d) {
    std::int64_t c = 0;
    for (; c < item.columns; ++c) block[d * kStripColumns + c] = to_float(w[d * p.n + c]);
    for (; c < kStripColumns; ++c) block[d * kStripColumns + c] = 0.0f;
  }
}

// Copies `count` columns of w, from column `depth` on, to the rows 0 … count - 1 of `block`. Row item.column of w
// becomes the first column of `block`. Columns past the item's last column become zeros.
template <class T>
TESSERA_INLINE void transpose_weights(const HeadLinearProblem& p, const Item& item, std::int64_t depth,
                                      std::int64_t count, float* block) {
  const T* w = reinterpret_cast<const T*>(p.w) + (item.head * p.n + item.column) * p.k + depth;
  const std::int64_t whole = count / kVecFloats * kVecFloats;
  for (std::int64_t c = 0; c < kStripColumns; c += kVecFloats)
    for (std::int64_t d = 0; d < whole; d += kVecFloats) {
      Vec16 rows[16];
      for (std::int64_t j = 0; j < kVecFloats; ++j)
        rows[j] = c + j < item.columns ? load16(w + (c + j) * p.k + d) : Vec16{};
      transpose16(rows);
      for (std::int64_t j = 0; j < kVecFloats; ++j) store16(block + (d + j) * kStripColumns + c, rows[j]);
    }
  for (std::int64_t d = whole; d < count; ++d)
    for (std::int64_t c = 0; c < kStripColumns; ++c)
      block[d * kStripColumns + c] = c < item.columns ? to_float(w[c * p.k + d]) : 0.0f;
}

template <class T>
TESSERA_CPU_CLONES void multiply(const HeadLinearProblem& p, const Item& item, const Scratch& s) {
  for (std::int64_t depth = 0; depth < p.k; depth += kBlockDepth) {
    const std::int64_t count = std::min(kBlockDepth, p.k - depth);
    if (p.transposed)
      copy_weights<T>(p, item, depth, count, s.w);
    else
      transpose_weights<T>(p, item, depth, count, s.w);
    for (std::int64_t r = 0; r < item.rows; ++r) {
      const T* from = reinterpret_cast<const T*>(p.x) + (item.row + r) * p.x_stride + item.head * p.x_dim + depth;
      for (std::int64_t d = 0; d < count; ++d) s.x[r * kBlockDepth + d] = to_float(from[d]);
    }
    gemm_block(
        {s.x, kBlockDepth, s.w, kStripColumns, s.sums, kStripColumns, item.rows, kStripColumns, count, depth > 0});
  }
  for (std::int64_t r = 0; r < item.rows; ++r) {
    T* to = reinterpret_cast<T*>(p.out) + ((item.row + r) * p.heads + item.head) * p.out_dim + item.column;
    for (std::int64_t c = 0; c < item.columns; ++c) to[c] = from_float<T>(s.sums[r * kStripColumns + c]);
  }
}

template <class T>
void run(const HeadLinearProblem& p, std::int64_t workers, float* scratch) {
  const std::int64_t strips = (p.n + kStripColumns - 1) / kStripColumns;
  const std::int64_t blocks = (p.rows + kBlockRows - 1) / kBlockRows;
  const std::int64_t items = p.heads * strips * blocks;
  std::atomic<std::int64_t> next{0};
  parallel_for(std::min(workers, items), 1, [&](std::int64_t begin, std::int64_t) {
    const Scratch own(scratch + begin * Scratch::kFloats);
    for (std::int64_t i = next++; i < items; i = next++) {
      const std::int64_t column = i % strips * kStripColumns;
      const std::int64_t row = i / strips % blocks * kBlockRows;
      multiply<T>(p,
                  {.head = i / strips / blocks,
                   .column = column,
                   .columns = std::min(kStripColumns, p.n - column),
                   .row = row,
                   .rows = std::min(kBlockRows, p.rows - row)},
                  own);
    }
  });
}

std::int64_t workers(const Device& device) { return std::max(1, device.properties().threads); }

}  // namespace

Result<std::unique_ptr<BoundOp>> bind_head_linear_cpu(const HeadLinearProblem& p, ir::DType dtype, Device& device,
                                                      DeviceAddress workspace) {
  return dispatch_dtype(dtype, "head_linear", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    return make_cpu_op("head_linear",
                       [p, count = workers(device), scratch = reinterpret_cast<float*>(workspace.raw())] {
                         run<T>(p, count, scratch);
                       });
  });
}

std::size_t head_linear_cpu_workspace_bytes(const Device& device) {
  return static_cast<std::size_t>(workers(device) * Scratch::kFloats) * sizeof(float);
}

}  // namespace tessera
