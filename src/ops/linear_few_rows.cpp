// linear for up to 8 rows: every weight is read once, used for all rows and forgotten. Memory sets the
// pace; the arithmetic has to stay out of its way.
#include <algorithm>

#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/cpu_math.h"
#include "tessera/ops/cpu_op.h"
#include "tessera/ops/cpu_vector.h"
#include "tessera/ops/linear_cpu.h"

namespace tessera {
namespace {

constexpr std::int64_t kStep = 32;  // weights of a row that are taken at once

// 32 consecutive weights as two vectors. Which lane holds which is the layout's business: pack_x puts x in
// the same order.
TESSERA_INLINE void load32(const float* w, Vec16& a, Vec16& b) {
  a = load16(w);
  b = load16(w + kVecFloats);
}
TESSERA_INLINE void load32(const Float16* w, Vec16& a, Vec16& b) {
  a = load16(w);
  b = load16(w + kVecFloats);
}
// A pair of bfloat16 is one 32-bit lane: the even ones by a shift, the odd ones by a mask.
TESSERA_INLINE void load32(const BFloat16* w, Vec16& even, Vec16& odd) {
  VecU16 pairs;
  std::memcpy(&pairs, w, sizeof(pairs));
  even = reinterpret_cast<Vec16>(pairs << 16);
  odd = reinterpret_cast<Vec16>(pairs & 0xffff0000u);
}

template <class T>
TESSERA_CPU_CLONES void pack_x(const T* x, float* packed, std::int64_t k) {
  const std::int64_t whole = k / kStep * kStep;
  for (std::int64_t i = 0; i < whole; i += kStep)
    for (std::int64_t j = 0; j < kVecFloats; ++j) {
      constexpr bool kPairs = std::is_same_v<T, BFloat16>;
      packed[i + j] = to_float(x[i + (kPairs ? 2 * j : j)]);
      packed[i + kVecFloats + j] = to_float(x[i + (kPairs ? 2 * j + 1 : kVecFloats + j)]);
    }
  for (std::int64_t i = whole; i < k; ++i) packed[i] = to_float(x[i]);
}

// Adds k = [begin, end), a multiple of 32 long, of kColumns neighbouring columns to `partial` [kColumns, kRows], a
// vector of partial sums for each element of y. Meanwhile all sums are in registers: the loops over them are unrolled.
template <int kRows, int kColumns, class T>
TESSERA_INLINE void add_columns(const T* w, const float* x, std::int64_t k, std::int64_t begin, std::int64_t end,
                                Vec16* partial) {
  Vec16 sum[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) sum[r][c] = partial[c * kRows + r];
  for (std::int64_t i = begin; i < end; i += kStep) {
    Vec16 a[kColumns];
    Vec16 b[kColumns];
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) load32(w + c * k + i, a[c], b[c]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec16 x_a = load16(x + r * k + i);
      const Vec16 x_b = load16(x + r * k + i + kVecFloats);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) sum[r][c] += x_a * a[c];
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) sum[r][c] += x_b * b[c];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) partial[c * kRows + r] = sum[r][c];
}

template <class T>
TESSERA_INLINE void store_element(const LinearProblem& p, const float* x, std::int64_t row, std::int64_t column,
                                  const Vec16& partial) {
  const T* w = reinterpret_cast<const T*>(p.w) + column * p.k;
  float value = sum16(partial);
  for (std::int64_t i = p.k / kStep * kStep; i < p.k; ++i) value += x[row * p.k + i] * to_float(w[i]);
  const std::int64_t at = row * p.n + column;
  if (p.bias) value += to_float(reinterpret_cast<const T*>(p.bias)[column]);
  if (p.residual) value += to_float(reinterpret_cast<const T*>(p.residual)[at]);
  reinterpret_cast<T*>(p.y)[at] = from_float<T>(value);
}

template <int kRows, class T>
TESSERA_CPU_CLONES void column_range(const LinearProblem& p, const float* x, std::int64_t begin, std::int64_t end) {
  // kRows·kColumns sums, 2·kColumns weights and 2 of x in 32 registers.
  constexpr int kColumns = kRows <= 4 ? 4 : kRows <= 6 ? 3 : 2;
  constexpr std::int64_t kBlockColumns = 24;  // a multiple of every kColumns
  // So much of k that the rows' share of x stays in the first-level cache for a block of columns.
  constexpr std::int64_t kDepth = 6144 / kRows / kStep * kStep;
  Vec16 partial[kBlockColumns * kRows];
  const std::int64_t whole = p.k / kStep * kStep;
  for (std::int64_t first = begin; first < end; first += kBlockColumns) {
    const std::int64_t count = std::min(kBlockColumns, end - first);
    const T* w = reinterpret_cast<const T*>(p.w) + first * p.k;
    std::fill(partial, partial + count * kRows, Vec16{});
    for (std::int64_t depth = 0; depth < whole; depth += kDepth) {
      const std::int64_t depth_end = std::min(whole, depth + kDepth);
      std::int64_t c = 0;
      for (; c + kColumns <= count; c += kColumns)
        add_columns<kRows, kColumns>(w + c * p.k, x, p.k, depth, depth_end, partial + c * kRows);
      for (; c < count; ++c) add_columns<kRows, 1>(w + c * p.k, x, p.k, depth, depth_end, partial + c * kRows);
    }
    for (std::int64_t c = 0; c < count; ++c)
      for (std::int64_t r = 0; r < kRows; ++r) store_element<T>(p, x, r, first + c, partial[c * kRows + r]);
  }
}

template <int kRows, class T>
void run(const LinearProblem& p) {
  float* x = reinterpret_cast<float*>(p.workspace);
  for (int r = 0; r < kRows; ++r) pack_x(reinterpret_cast<const T*>(p.x) + r * p.k, x + r * p.k, p.k);
  // Below 32 Ki weights a thread costs more to wake than it does.
  const std::int64_t grain = std::max<std::int64_t>(4, 32768 / std::max<std::int64_t>(p.k, 1));
  parallel_for(p.n, grain, [&](std::int64_t begin, std::int64_t end) { column_range<kRows, T>(p, x, begin, end); });
}

template <class T>
Result<std::unique_ptr<BoundOp>> bind_rows(const LinearProblem& p) {
  switch (p.m) {
    case 1: return make_cpu_op("linear", [p] { run<1, T>(p); });
    case 2: return make_cpu_op("linear", [p] { run<2, T>(p); });
    case 3: return make_cpu_op("linear", [p] { run<3, T>(p); });
    case 4: return make_cpu_op("linear", [p] { run<4, T>(p); });
    case 5: return make_cpu_op("linear", [p] { run<5, T>(p); });
    case 6: return make_cpu_op("linear", [p] { run<6, T>(p); });
    case 7: return make_cpu_op("linear", [p] { run<7, T>(p); });
    case 8: return make_cpu_op("linear", [p] { run<8, T>(p); });
    default: return internal_error("linear's kernel for few rows is bound for too many");
  }
}

}  // namespace

std::size_t few_rows_workspace_bytes(const LinearProblem& problem) {
  return static_cast<std::size_t>(problem.m * problem.k) * sizeof(float);
}

Result<std::unique_ptr<BoundOp>> bind_few_rows(const LinearProblem& problem) {
  return dispatch_dtype(problem.dtype, "linear",
                        [&]<class T>() -> Result<std::unique_ptr<BoundOp>> { return bind_rows<T>(problem); });
}

}  // namespace tessera
