// Computes a linear by dot products of rows. With a few rows of x, this takes as long as reading w from memory, because
// each weight is read once for all rows. A deterministic forward uses this kernel for any number of rows, because the
// bits of a row do not depend on the number of rows.
//
// Every element of y is summed in one order, which depends on k alone. First 16 lanes add up the products, 32 values of
// k at a time. Then the lanes' sums are added up, and then the products of the remainder of k. The number of rows and
// columns that are processed at once changes no bit.
#include <unistd.h>

#include <algorithm>
#include <type_traits>

#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/cpu_vector.h"
#include "tessera/ops/linear/linear_cpu.h"

namespace tessera {
namespace {

constexpr std::int64_t kStep = 32;  // weights of a row that are processed at once

// Loads 32 consecutive values as two vectors. Both x and w must be loaded this way, so that a lane holds the same
// column of x and of w.
TESSERA_INLINE void load32(const float* w, Vec16& a, Vec16& b) {
  a = load16(w);
  b = load16(w + kVecFloats);
}
// Loads 32 bfloat16 values; a 32-bit lane holds two. A shift extracts the even values, and a mask extracts the odd
// ones.
TESSERA_INLINE void load32(const BFloat16* w, Vec16& even, Vec16& odd) {
  VecU16 pairs;
  std::memcpy(&pairs, w, sizeof(pairs));
  even = reinterpret_cast<Vec16>(pairs << 16);
  odd = reinterpret_cast<Vec16>(pairs & 0xffff0000u);
}

// Adds 32 products to 16 sums, in two steps of 16 float32 products.
struct AsFloats {
  static constexpr int kSteps = 2;
  struct Values {
    Vec16 of_step[kSteps];
  };
  template <class T>
  static TESSERA_INLINE Values load(const T* p) {
    Values v;
    load32(p, v.of_step[0], v.of_step[1]);
    return v;
  }
  static TESSERA_INLINE void add(const Values& x, const Values& w, int step, Vec16& sum) {
    sum += x.of_step[step] * w.of_step[step];
  }
};

// Adds 32 products with AVX-512's bfloat16 dot product. This instruction adds two products to each lane, and is twice
// as fast as AsFloats. It is inline assembly, because the intrinsic cannot be used in functions that are compiled for
// every machine.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TESSERA_BFLOAT16_PAIRS
struct AsPairs {
  static constexpr int kSteps = 1;
  using Values = Vec16;
  static TESSERA_INLINE Values load(const BFloat16* p) {
    Values v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  static TESSERA_INLINE void add(Values const& x, Values const& w, int, Vec16& sum) {
    Vec16 held = sum;  // a variable of its own, because an array element would stay in memory
    asm("vdpbf16ps %1, %2, %0" : "+v"(held) : "v"(Vec16(w)), "v"(Vec16(x)));
    sum = held;
  }
};
#endif

// Says whether rows of x and w are converted to float32 before the products. float32 and bfloat16 are cheap to convert
// while they are read, but float16 is not.
template <class T>
constexpr bool kConvertsFirst = std::is_same_v<T, Float16>;
template <class T>
using Read = DotInput<T>;

template <class T>
TESSERA_CPU_CLONES void convert_rows(const T* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}

constexpr std::int64_t kLineBytes = 64;

// Returns whether to prefetch weights. With one or two rows, memory bandwidth is the limit, and the hardware prefetcher
// predicts the loads. Prefetches save time only with more rows.
constexpr bool fetches_ahead(std::int64_t rows) { return rows > 2; }

// Prefetches the weights of the next columns, `lines` cache lines at each step of k. The prefetches are spread evenly,
// because a core can have only a limited number in flight, and further prefetches would delay the core's products.
struct Ahead {
  const std::byte* next;
  const std::byte* end;
  std::int64_t lines;

  TESSERA_INLINE void fetch() {
    for (std::int64_t line = 0; line < lines; ++line, next += kLineBytes) __builtin_prefetch(next, 0, 2);
  }
};

// Adds the products for the range [begin, end) of k and for kColumns neighbouring columns of y. The length of the range
// is a multiple of 32. `partial` [kColumns, kRows] has a vector of partial sums for each element of y. The loops over
// the sums are unrolled, so that all sums stay in registers.
template <class Products, int kRows, int kColumns, class T>
TESSERA_INLINE void add_columns(const T* w, const T* x, std::int64_t k, std::int64_t begin, std::int64_t end,
                                Ahead& ahead, Vec16* partial) {
  Ahead own{ahead.next, ahead.end, ahead.next < ahead.end ? ahead.lines : 0};
  Vec16 sum[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) sum[r][c] = partial[c * kRows + r];
  for (std::int64_t i = begin; i < end; i += kStep) {
    typename Products::Values weights[kColumns];
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) weights[c] = Products::load(w + c * k + i);
    if constexpr (fetches_ahead(kRows)) own.fetch();
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const typename Products::Values values = Products::load(x + r * k + i);
#pragma GCC unroll 2
      for (int step = 0; step < Products::kSteps; ++step)
#pragma GCC unroll 8
        for (int c = 0; c < kColumns; ++c) Products::add(values, weights[c], step, sum[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) partial[c * kRows + r] = sum[r][c];
  ahead.next = own.next;
}

// Stores one element of y as type T. `partial` holds the element's partial sums over the whole steps of k. The function
// adds the products of the remainder of k, from the row `x` and the column's weights `w`.
template <class T, class R>
TESSERA_INLINE void store_as(const LinearProblem& p, const R* x, const R* w, std::int64_t row, std::int64_t column,
                             const Vec16& partial) {
  float value = sum16(partial);
  for (std::int64_t i = p.k / kStep * kStep; i < p.k; ++i) value += to_float(x[i]) * to_float(w[i]);
  const std::int64_t at = row * p.n + column;
  if (p.bias) value += to_float(reinterpret_cast<const T*>(p.bias)[column]);
  if (p.residual) value += to_float(reinterpret_cast<const T*>(p.residual)[at]);
  reinterpret_cast<T*>(p.y)[at] = from_float<T>(value);
}

// Stores one element of y in the problem's type. float32 products and products of converted float16 share one
// instantiation, so that it is compiled once.
template <class R>
TESSERA_INLINE void store_element(const LinearProblem& p, const R* x, const R* w, std::int64_t row, std::int64_t column,
                                  const Vec16& partial) {
  if constexpr (std::is_same_v<R, float>) {
    if (p.dtype == ir::DType::kFloat16) return store_as<Float16>(p, x, w, row, column, partial);
  }
  store_as<R>(p, x, w, row, column, partial);
}

// The number of columns of y in a block. The weights of these columns stay in the cache while one group of rows after
// another is multiplied by them.
constexpr std::int64_t kBlockColumns = 24;

constexpr int kGroupRows = 8;

// A block of at most kBlockColumns neighbouring columns with their weights. `next` is the number of columns in the next
// block, or 0 if there is nothing to prefetch. The weights of the next block follow the weights of this block in
// memory.
template <class R>
struct Columns {
  std::int64_t first;
  std::int64_t count;
  const R* w;
  std::int64_t next;
};

// Returns the greatest number of columns for which the sums, the weights and one row of x fit in 31 of the 32
// registers.
constexpr int columns_at_once(int rows, int steps) {
  int columns = 4;
  while (rows * columns + steps * (columns + 1) > 31) --columns;
  return columns;
}

// Computes the rows [row, row + kRows) of a block of columns. `x` holds all rows. Meanwhile the next block's weights
// are prefetched. `groups` is the number of row groups among which these prefetches are divided.
template <class Products, int kRows, class R>
TESSERA_INLINE void add_block(const LinearProblem& p, const R* x, std::int64_t row, const Columns<R>& columns,
                              std::int64_t groups, Ahead& ahead) {
  constexpr int kColumns = columns_at_once(kRows, Products::kSteps);
  // k is processed in parts of this depth, so that a part of the kRows rows of x stays in the L1 cache for all columns
  // of the block.
  constexpr auto kDepth = static_cast<std::int64_t>(24576 / sizeof(R) / kRows / kStep * kStep);
  constexpr auto kStepBytes = static_cast<std::int64_t>(kColumns * kStep * sizeof(R));
  ahead.lines = (kStepBytes + groups * kLineBytes - 1) / (groups * kLineBytes);
  Vec16 partial[kBlockColumns * kRows];
  const std::int64_t whole = p.k / kStep * kStep;
  x += row * p.k;
  std::fill(partial, partial + columns.count * kRows, Vec16{});
  for (std::int64_t depth = 0; depth < whole; depth += kDepth) {
    const std::int64_t end = std::min(whole, depth + kDepth);
    std::int64_t c = 0;
    for (; c + kColumns <= columns.count; c += kColumns)
      add_columns<Products, kRows, kColumns>(columns.w + c * p.k, x, p.k, depth, end, ahead, partial + c * kRows);
    for (; c < columns.count; ++c)
      add_columns<Products, kRows, 1>(columns.w + c * p.k, x, p.k, depth, end, ahead, partial + c * kRows);
  }
  for (std::int64_t c = 0; c < columns.count; ++c)
    for (std::int64_t r = 0; r < kRows; ++r)
      store_element(p, x + r * p.k, columns.w + c * p.k, row + r, columns.first + c, partial[c * kRows + r]);
}

// Computes all rows of a block of columns, in groups of up to eight. Meanwhile the next block's weights arrive from
// memory.
template <class Products, class R>
TESSERA_INLINE void add_rows(const LinearProblem& p, const R* x, const Columns<R>& columns) {
  // Only groups of more than two rows prefetch (fetches_ahead()).
  const std::int64_t groups = std::max<std::int64_t>(1, p.m / kGroupRows + (fetches_ahead(p.m % kGroupRows) ? 1 : 0));
  const auto* next = reinterpret_cast<const std::byte*>(columns.w + columns.count * p.k);
  Ahead ahead{next, next + columns.next * p.k * static_cast<std::int64_t>(sizeof(R)), 0};
  std::int64_t row = 0;
  for (; row + kGroupRows <= p.m; row += kGroupRows) add_block<Products, kGroupRows>(p, x, row, columns, groups, ahead);
  switch (p.m - row) {
    case 7: return add_block<Products, 7>(p, x, row, columns, groups, ahead);
    case 6: return add_block<Products, 6>(p, x, row, columns, groups, ahead);
    case 5: return add_block<Products, 5>(p, x, row, columns, groups, ahead);
    case 4: return add_block<Products, 4>(p, x, row, columns, groups, ahead);
    case 3: return add_block<Products, 3>(p, x, row, columns, groups, ahead);
    case 2: return add_block<Products, 2>(p, x, row, columns, groups, ahead);
    case 1: return add_block<Products, 1>(p, x, row, columns, groups, ahead);
    default: return;
  }
}

template <class R>
TESSERA_CPU_CLONES void add_rows_as_floats(const LinearProblem& p, const R* x, const Columns<R>& columns) {
  add_rows<AsFloats>(p, x, columns);
}

#ifdef TESSERA_BFLOAT16_PAIRS
__attribute__((target("arch=x86-64-v4"))) void add_rows_as_pairs(const LinearProblem& p, const BFloat16* x,
                                                                 const Columns<BFloat16>& columns) {
  add_rows<AsPairs>(p, x, columns);
}
bool has_pairs() { return __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512bw") != 0; }
#endif

template <class R>
void all_rows(const LinearProblem& p, const R* x, const Columns<R>& columns) {
#ifdef TESSERA_BFLOAT16_PAIRS
  if constexpr (std::is_same_v<R, BFloat16>) {
    if (has_pairs()) return add_rows_as_pairs(p, x, columns);
  }
#endif
  add_rows_as_floats(p, x, columns);
}

std::int64_t block_floats(const LinearProblem& p) { return dot_own_floats(p.dtype, p.k); }

}  // namespace

std::int64_t dot_own_floats(ir::DType dtype, std::int64_t k) {
  return dtype == ir::DType::kFloat16 ? kBlockColumns * k : 0;
}

template <class T>
void dot_columns(const LinearProblem& p, const DotInput<T>* x, std::int64_t begin, std::int64_t end, float* own) {
  for (std::int64_t first = begin; first < end; first += kBlockColumns) {
    const std::int64_t count = std::min(kBlockColumns, end - first);
    const T* w = reinterpret_cast<const T*>(p.w) + first * p.k;
    if constexpr (kConvertsFirst<T>) {
      convert_rows(w, own, count * p.k);
      all_rows<Read<T>>(p, x, {first, count, own, 0});
    } else {
      all_rows<Read<T>>(p, x, {first, count, w, std::min(kBlockColumns, end - first - count)});
    }
  }
}

template void dot_columns<float>(const LinearProblem&, const float*, std::int64_t, std::int64_t, float*);
template void dot_columns<BFloat16>(const LinearProblem&, const BFloat16*, std::int64_t, std::int64_t, float*);
template void dot_columns<Float16>(const LinearProblem&, const float*, std::int64_t, std::int64_t, float*);

namespace {

template <class T>
const Read<T>* read_x(const LinearProblem& p, [[maybe_unused]] float* own) {
  const T* x = reinterpret_cast<const T*>(p.x);
  if constexpr (kConvertsFirst<T>) {
    parallel_for(p.m, 16, [&](std::int64_t begin, std::int64_t end) {
      convert_rows(x + begin * p.k, own + begin * p.k, (end - begin) * p.k);
    });
    return own;
  } else {
    return x;
  }
}

template <class T>
void run(const LinearProblem& p) {
  float* blocks = reinterpret_cast<float*>(p.workspace);
  const Read<T>* x = read_x<T>(p, blocks + p.workers * block_floats(p));
  // Waking a thread costs as much as about 32 Ki products, so each thread gets at least that many.
  const std::int64_t grain = std::max<std::int64_t>(4, 32768 / std::max<std::int64_t>(p.m * p.k, 1));
  const std::int64_t ranges = std::min(p.workers, (p.n + grain - 1) / grain);
  parallel_for(ranges, 1, [&](std::int64_t begin, std::int64_t end) {
    dot_columns<T>(p, x, p.n * begin / ranges, p.n * end / ranges, blocks + begin * block_floats(p));
  });
}

}  // namespace

// The limits follow from measurements on two cores of a Zen 5 EPYC with w [6144, 1024], in GB/s of weights:
//
//   rows of x     bfloat16: 8  16  32    float32: 8  16
//   this kernel            36  28  16            36  24
//   oneDNN                 26  22  16            25  19
//
// Without AVX-512 there are half as many registers. Without bfloat16 products there is twice the work. In both cases
// oneDNN was faster for five rows or more. With more than eight rows, the second group of eight rows reads a block of
// weights again, while the next block is prefetched. So both blocks together must fit in the core's cache. For
// w [4096, 14336] the two blocks do not fit: with 32 rows this kernel reaches 15 GB/s, and oneDNN reaches 17.
std::int64_t most_rows_for_dot(const LinearProblem& problem) {
#ifdef TESSERA_BFLOAT16_PAIRS
  static const std::int64_t cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  const bool pairs = problem.dtype == ir::DType::kBFloat16 && has_pairs();
  const bool floats = problem.dtype == ir::DType::kFloat32 && __builtin_cpu_supports("x86-64-v4") != 0;
  const std::int64_t bytes = 2 * kBlockColumns * problem.k * static_cast<std::int64_t>(ir::dtype_size(problem.dtype));
  if (pairs || floats) return bytes > cache ? kGroupRows : pairs ? 32 : 16;
#endif
  return 4;
}

std::size_t dot_workspace_bytes(const LinearProblem& problem) {
  const std::int64_t x_floats = problem.dtype == ir::DType::kFloat16 ? problem.m * problem.k : 0;
  return static_cast<std::size_t>(problem.workers * block_floats(problem) + x_floats) * sizeof(float);
}

Result<std::unique_ptr<BoundOp>> bind_dot(const LinearProblem& problem) {
  return dispatch_dtype(problem.dtype, "linear", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    return make_cpu_op("linear", [p = problem] { run<T>(p); });
  });
}

}  // namespace tessera
