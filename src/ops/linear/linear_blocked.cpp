// Computes a linear of any size. This kernel is used if oneDNN has no fast kernel. x is converted to float32 once. Then
// y is computed in parts of at most 1024 rows and 64 columns. For each part, blocks of w are converted, transposed and
// multiplied by the rows of x. With more than 1024 rows, w is converted several times.
#include <algorithm>
#include <atomic>

#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/cpu_vector.h"
#include "tessera/ops/linear/cpu_gemm.h"
#include "tessera/ops/linear/linear_cpu.h"

namespace tessera {
namespace {

constexpr std::int64_t kStripColumns = 64;
constexpr std::int64_t kBlockDepth = 256;  // columns of w in a block; a block takes 64 · 256 · 4 bytes = 64 KiB
constexpr std::int64_t kBlockRows = 1024;  // rows of x at a time; their sums take 1024 · 64 · 4 bytes = 256 KiB

std::int64_t sum_rows(const LinearProblem& p) { return std::min(p.m, kBlockRows); }
std::int64_t worker_floats(const LinearProblem& p) { return (kBlockDepth + sum_rows(p)) * kStripColumns; }

template <class T>
TESSERA_CPU_CLONES void convert_rows(const T* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}

// Converts the block of w that begins at w[column, depth] to float32, and stores it transposed: each column
// of the stored block is a row of w. Columns past the last row of w are zeros.
template <class T>
TESSERA_CPU_CLONES void pack_block(const LinearProblem& p, std::int64_t column, std::int64_t depth, std::int64_t count,
                                   float* block) {
  const T* w = reinterpret_cast<const T*>(p.w);
  const std::int64_t columns = std::min(kStripColumns, p.n - column);
  const std::int64_t whole = count / kVecFloats * kVecFloats;
  for (std::int64_t c = 0; c < kStripColumns; c += kVecFloats)
    for (std::int64_t d = 0; d < whole; d += kVecFloats) {
      Vec16 rows[16];
      for (std::int64_t j = 0; j < kVecFloats; ++j)
        rows[j] = c + j < columns ? load16(w + (column + c + j) * p.k + depth + d) : Vec16{};
      transpose16(rows);
      for (std::int64_t j = 0; j < kVecFloats; ++j) store16(block + (d + j) * kStripColumns + c, rows[j]);
    }
  for (std::int64_t d = whole; d < count; ++d)
    for (std::int64_t c = 0; c < kStripColumns; ++c)
      block[d * kStripColumns + c] = c < columns ? to_float(w[(column + c) * p.k + depth + d]) : 0.0f;
}

template <class T>
TESSERA_CPU_CLONES void store_rows(const LinearProblem& p, const float* sums, std::int64_t row, std::int64_t rows,
                                   std::int64_t column) {
  const std::int64_t columns = std::min(kStripColumns, p.n - column);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t at = (row + r) * p.n + column;
    float value[kStripColumns];
    for (std::int64_t c = 0; c < columns; ++c) value[c] = sums[r * kStripColumns + c];
    if (p.bias)
      for (std::int64_t c = 0; c < columns; ++c) value[c] += to_float(reinterpret_cast<const T*>(p.bias)[column + c]);
    if (p.residual)
      for (std::int64_t c = 0; c < columns; ++c) value[c] += to_float(reinterpret_cast<const T*>(p.residual)[at + c]);
    for (std::int64_t c = 0; c < columns; ++c) reinterpret_cast<T*>(p.y)[at + c] = from_float<T>(value[c]);
  }
}

// Computes one strip of columns of y for the rows [row, row + rows).
template <class T>
void strip(const LinearProblem& p, const float* x, std::int64_t row, std::int64_t rows, std::int64_t column,
           float* block) {
  float* sums = block + kBlockDepth * kStripColumns;
  std::fill(sums, sums + rows * kStripColumns, 0.0f);
  for (std::int64_t depth = 0; depth < p.k; depth += kBlockDepth) {
    const std::int64_t count = std::min(kBlockDepth, p.k - depth);
    pack_block<T>(p, column, depth, count, block);
    gemm_block(
        {x + row * p.k + depth, p.k, block, kStripColumns, sums, kStripColumns, rows, kStripColumns, count, true});
  }
  store_rows<T>(p, sums, row, rows, column);
}

template <class T>
void run(const LinearProblem& p) {
  float* scratch = reinterpret_cast<float*>(p.workspace);
  float* x = scratch + p.workers * worker_floats(p);
  parallel_for(p.m, 16, [&](std::int64_t begin, std::int64_t end) {
    convert_rows(reinterpret_cast<const T*>(p.x) + begin * p.k, x + begin * p.k, (end - begin) * p.k);
  });
  const std::int64_t strips = (p.n + kStripColumns - 1) / kStripColumns;
  const std::int64_t items = strips * ((p.m + kBlockRows - 1) / kBlockRows);
  std::atomic<std::int64_t> next{0};
  parallel_for(std::min(p.workers, items), 1, [&](std::int64_t begin, std::int64_t) {
    float* own = scratch + begin * worker_floats(p);
    for (std::int64_t item = next++; item < items; item = next++) {
      const std::int64_t row = item / strips * kBlockRows;
      strip<T>(p, x, row, std::min(kBlockRows, p.m - row), item % strips * kStripColumns, own);
    }
  });
}

}  // namespace

std::size_t blocked_workspace_bytes(const LinearProblem& problem) {
  return static_cast<std::size_t>(problem.workers * worker_floats(problem) + problem.m * problem.k) * sizeof(float);
}

Result<std::unique_ptr<BoundOp>> bind_blocked(const LinearProblem& problem) {
  return dispatch_dtype(problem.dtype, "linear", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    return make_cpu_op("linear", [p = problem] { run<T>(p); });
  });
}

}  // namespace tessera
