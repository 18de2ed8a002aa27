#include "tessera/ops/attention/int8_rows.h"

#include <bit>

#include "tessera/ops/cpu/cpu_math.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TESSERA_INT8_ROWS
#endif

namespace tessera {
namespace {

TESSERA_CPU_CLONES void round_rows(const float* q, std::int64_t stride, std::int64_t rows, std::int64_t head_dim,
                                   std::int16_t* codes, float* scales) {
  for (std::int64_t r = 0; r < rows; ++r, q += stride, codes += head_dim) {
    float greatest = 0.0f;
    float poison = 0.0f;
#pragma omp simd reduction(max : greatest) reduction(+ : poison)
    for (std::int64_t d = 0; d < head_dim; ++d) {
      const float magnitude = q[d] < 0.0f ? -q[d] : q[d];
      greatest = magnitude > greatest ? magnitude : greatest;
      poison += q[d] * 0.0f;
    }
    scales[r] = greatest / 32767.0f + poison;
    const float factor = greatest > 1e-30f ? 32767.0f / greatest : 0.0f;
    // Adding 1.5·2^23 to a number leaves the rounded number in the low bits of the sum. A cast to an integer would be
    // undefined for NaN.
    constexpr float kMagic = 12582912.0f;
#pragma omp simd
    for (std::int64_t d = 0; d < head_dim; ++d)
      codes[d] = static_cast<std::int16_t>(std::bit_cast<std::int32_t>(q[d] * factor + kMagic));
  }
}

#ifdef TESSERA_INT8_ROWS

// Some instructions are issued by inline assembly, because intrinsics cannot be used in functions that are compiled for
// several instruction sets.
template <int kVectorBytes>
struct Vectors {
  static constexpr int kLanes = kVectorBytes / 4;
  static constexpr int kParts = static_cast<int>(kInt8Block) / (2 * kLanes);  // number of steps of dot_keys in a block
  using F [[gnu::vector_size(kVectorBytes)]] = float;
  using I [[gnu::vector_size(kVectorBytes)]] = std::int32_t;

  static TESSERA_INLINE F load(const float* p) {
    F v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  static TESSERA_INLINE void store(float* p, F const& v) { std::memcpy(p, &v, sizeof(v)); }
  static TESSERA_INLINE F splat(float x) { return F{} + x; }
  // Widens 2 · kLanes codes to 16 bits.
  static TESSERA_INLINE I pairs(const std::int8_t* p) {
    I v;
    asm("vpmovsxbw %1, %0" : "=v"(v) : "m"(*reinterpret_cast<const std::int8_t(*)[2 * kLanes]>(p)));
    return v;
  }
  // Widens kLanes codes to 32 bits.
  static TESSERA_INLINE I words(const std::int8_t* p) {
    I v;
    asm("vpmovsxbd %1, %0" : "=v"(v) : "m"(*reinterpret_cast<const std::int8_t(*)[kLanes]>(p)));
    return v;
  }
  // Multiplies 16-bit numbers element by element, and adds the products of each two neighbouring elements.
  static TESSERA_INLINE I multiply(I const& codes, const std::int16_t* q) {
    I v;
    asm("vpmaddwd %1, %2, %0" : "=v"(v) : "m"(*reinterpret_cast<const std::int16_t(*)[2 * kLanes]>(q)), "v"(codes));
    return v;
  }
};

struct Avx512 : Vectors<64> {
  static constexpr int kMostRows = 4;  // maximum number of rows whose sums fit in the registers
  static constexpr int kBlocks = 2;    // blocks of columns that add_values adds up at once
  static TESSERA_INLINE F floats(I const& v) { return __builtin_convertvector(v, F); }
  // Sets to[i] to the sum of the elements of v[i]. The order of addition is the same for all four vectors.
  static TESSERA_INLINE void sums(F const (&v)[4], float (&to)[4]) {
    const F a = __builtin_shuffle(v[0], v[1], I{0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29}) +
                __builtin_shuffle(v[0], v[1], I{2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31});
    const F b = __builtin_shuffle(v[2], v[3], I{0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29}) +
                __builtin_shuffle(v[2], v[3], I{2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31});
    F all = __builtin_shuffle(a, b, I{0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29}) +
            __builtin_shuffle(a, b, I{2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31});
    all += __builtin_shuffle(all, I{8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7});
    all += __builtin_shuffle(all, I{4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3});
    for (int i = 0; i < 4; ++i) to[i] = all[i];
  }
};

struct Avx2 : Vectors<32> {
  static constexpr int kMostRows = 2;
  static constexpr int kBlocks = 1;
  static TESSERA_INLINE F floats(I const& v) { return __builtin_convertvector(v, F); }
  static TESSERA_INLINE void sums(F const (&v)[4], float (&to)[4]) {
    const F a = __builtin_shuffle(v[0], v[1], I{0, 8, 1, 9, 4, 12, 5, 13}) +
                __builtin_shuffle(v[0], v[1], I{2, 10, 3, 11, 6, 14, 7, 15});
    const F b = __builtin_shuffle(v[2], v[3], I{0, 8, 1, 9, 4, 12, 5, 13}) +
                __builtin_shuffle(v[2], v[3], I{2, 10, 3, 11, 6, 14, 7, 15});
    F all =
        __builtin_shuffle(a, b, I{0, 1, 8, 9, 4, 5, 12, 13}) + __builtin_shuffle(a, b, I{2, 3, 10, 11, 6, 7, 14, 15});
    all += __builtin_shuffle(all, I{4, 5, 6, 7, 0, 1, 2, 3});
    for (int i = 0; i < 4; ++i) to[i] = all[i];
  }
};

// Computes the scores of kRows rows, four keys at a time. In place of keys before or after `present`, a step repeats
// the first or the last key of `present`. So every step has four keys, and all scores are added up in the same order.
template <class V, int kRows>
TESSERA_INLINE void dot_keys_of(const AttentionProblem& p, const AttentionScratch& s, std::int64_t row,
                                KeyRange present) {
  using F = typename V::F;
  const std::int16_t* q = reinterpret_cast<const std::int16_t*>(s.keys) + row * p.head_dim;
  for (std::int64_t j = present.begin / 4 * 4; j < present.end; j += 4) {
    CacheRow<Int8Cache> key[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const std::int64_t at = std::clamp(j + k, present.begin, present.end - 1);
      key[k] = key_at<Int8Cache>(p, s, at);
      if (row != 0) continue;
      for (std::int64_t d = 0; d < p.head_dim; d += 64) {
        __builtin_prefetch(p.k_cache + s.offsets[at + kPrefetchKeys] + d);
        __builtin_prefetch(p.v_cache + s.offsets[at] + d);
      }
    }
    F sum[kRows][4] = {};
    for (std::int64_t block = 0; block < p.head_dim / kInt8Block; ++block)
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        const F scale = V::splat(key[k].scales[block]);
#pragma GCC unroll 2
        for (int part = 0; part < V::kParts; ++part) {
          const std::int64_t d = block * kInt8Block + part * 2 * V::kLanes;
          const typename V::I codes = V::pairs(key[k].codes + d);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) sum[r][k] += V::floats(V::multiply(codes, q + r * p.head_dim + d)) * scale;
        }
      }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      float scores[4];
      V::sums(sum[r], scores);
      for (int k = 0; k < 4; ++k) s.scores[(row + r) * kBlockKeys + j + k] = scores[k] * s.values[row + r];
    }
  }
}

// Adds the weighted values of kBlocks blocks of columns to the sums of kRows rows.
template <class V, int kRows, int kBlocks>
TESSERA_INLINE void add_columns(const AttentionProblem& p, const AttentionScratch& s, std::int64_t row, std::int64_t d,
                                KeyRange present) {
  using F = typename V::F;
  constexpr int kVecs = static_cast<int>(kInt8Block) / V::kLanes;  // number of vectors in a block of columns
  const std::int64_t stride = p.padded_dim();
  float* sums = s.sums + row * stride + d;
  const float* weights = s.scores + row * kBlockKeys;
  F sum[kRows][kBlocks * kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int i = 0; i < kBlocks * kVecs; ++i) sum[r][i] = V::load(sums + r * stride + i * V::kLanes);
  for (std::int64_t j = present.begin; j < present.end; ++j) {
    const CacheRow<Int8Cache> value = value_at<Int8Cache>(p, s, j);
#pragma GCC unroll 2
    for (int b = 0; b < kBlocks; ++b) {
      const float scale = value.scales[d / kInt8Block + b];
      F weight[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) weight[r] = V::splat(weights[r * kBlockKeys + j] * scale);
#pragma GCC unroll 4
      for (int i = 0; i < kVecs; ++i) {
        const F v = V::floats(V::words(value.codes + d + b * kInt8Block + i * V::kLanes));
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sum[r][b * kVecs + i] += weight[r] * v;
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int i = 0; i < kBlocks * kVecs; ++i) V::store(sums + r * stride + i * V::kLanes, sum[r][i]);
}

template <class V, int kRows>
TESSERA_INLINE void add_values_of(const AttentionProblem& p, const AttentionScratch& s, std::int64_t row,
                                  KeyRange present) {
  constexpr std::int64_t kColumns = V::kBlocks * kInt8Block;
  std::int64_t d = 0;
  for (; d + kColumns <= p.head_dim; d += kColumns) add_columns<V, kRows, V::kBlocks>(p, s, row, d, present);
  for (; d < p.head_dim; d += kInt8Block) add_columns<V, kRows, 1>(p, s, row, d, present);
}

template <class V>
TESSERA_INLINE void dot_all(const AttentionProblem& p, const AttentionScratch& s, std::int64_t rows, KeyRange present) {
  std::int64_t r = 0;
  if constexpr (V::kMostRows >= 4)
    for (; r + 4 <= rows; r += 4) dot_keys_of<V, 4>(p, s, r, present);
  for (; r + 2 <= rows; r += 2) dot_keys_of<V, 2>(p, s, r, present);
  if (r < rows) dot_keys_of<V, 1>(p, s, r, present);
}

template <class V>
TESSERA_INLINE void add_all(const AttentionProblem& p, const AttentionScratch& s, std::int64_t rows, KeyRange present) {
  std::int64_t r = 0;
  if constexpr (V::kMostRows >= 4)
    for (; r + 4 <= rows; r += 4) add_values_of<V, 4>(p, s, r, present);
  for (; r + 2 <= rows; r += 2) add_values_of<V, 2>(p, s, r, present);
  if (r < rows) add_values_of<V, 1>(p, s, r, present);
}

__attribute__((target("arch=x86-64-v4"))) void dot_keys_avx512(const AttentionProblem& p, const AttentionScratch& s,
                                                               std::int64_t rows, KeyRange present) {
  dot_all<Avx512>(p, s, rows, present);
}
__attribute__((target("arch=x86-64-v4"))) void add_values_avx512(const AttentionProblem& p, const AttentionScratch& s,
                                                                 std::int64_t rows, KeyRange present) {
  add_all<Avx512>(p, s, rows, present);
}
__attribute__((target("arch=x86-64-v3"))) void dot_keys_avx2(const AttentionProblem& p, const AttentionScratch& s,
                                                             std::int64_t rows, KeyRange present) {
  dot_all<Avx2>(p, s, rows, present);
}
__attribute__((target("arch=x86-64-v3"))) void add_values_avx2(const AttentionProblem& p, const AttentionScratch& s,
                                                               std::int64_t rows, KeyRange present) {
  add_all<Avx2>(p, s, rows, present);
}

#endif

}  // namespace

#ifdef TESSERA_INT8_ROWS
const Int8RowKernels* int8_row_kernels_avx512() {
  static constexpr Int8RowKernels kKernels{"avx512", dot_keys_avx512, add_values_avx512};
  static const bool has = __builtin_cpu_supports("x86-64-v4") != 0;
  return has ? &kKernels : nullptr;
}
const Int8RowKernels* int8_row_kernels_avx2() {
  static constexpr Int8RowKernels kKernels{"avx2", dot_keys_avx2, add_values_avx2};
  static const bool has = __builtin_cpu_supports("x86-64-v3") != 0;
  return has ? &kKernels : nullptr;
}
#else
const Int8RowKernels* int8_row_kernels_avx512() { return nullptr; }
const Int8RowKernels* int8_row_kernels_avx2() { return nullptr; }
#endif

const Int8RowKernels* int8_row_kernels(std::int64_t head_dim) {
  if (head_dim % kInt8Block != 0) return nullptr;
  const Int8RowKernels* best = int8_row_kernels_avx512();
  return best != nullptr ? best : int8_row_kernels_avx2();
}

void round_queries(const AttentionProblem& p, const AttentionScratch& s, std::int64_t rows) {
  round_rows(s.q, p.padded_dim(), rows, p.head_dim, reinterpret_cast<std::int16_t*>(s.keys), s.values);
}

}  // namespace tessera
