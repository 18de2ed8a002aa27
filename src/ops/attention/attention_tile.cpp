// The CPU's kernel for one tile. For each block of 64 keys of the cache it computes scores, online softmax (running
// maximum and sum, as in "Online normalizer calculation for softmax", arXiv:1805.02867) and the weighted sum of values.
// All arithmetic is float32.
//
// Tiles of many rows convert the block's keys and values to float32 once, and multiply matrices. Tiles of a few rows
// (decode) read keys and values straight from the cache. They also add up the products of a score in another order than
// tiles of many rows do. Blocks start at multiples of 64, and keys that a row does not see add exact zeros. So a row's
// bits depend neither on its index in a tile nor on the tile's other rows. With `deterministic` all tiles are computed
// as tiles of many rows, and the bits do not depend on the number of rows either.
#include "tessera/ops/attention/attention_tile.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "tessera/ops/attention/cache_rows.h"
#include "tessera/ops/attention/int8_rows.h"
#include "tessera/ops/cache/cpu_cache_type.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_vector.h"
#include "tessera/ops/linear/cpu_gemm.h"

namespace tessera {
namespace {

constexpr std::int64_t kFewRows = 8;

// Returns whether the tile's rows read keys and values straight from the cache.
TESSERA_INLINE bool has_few_rows(const AttentionProblem& p, const AttentionTile& tile) {
  return tile.rows() <= kFewRows && !p.deterministic;
}

// True if tiles of a few rows read 64 elements of a cache of type Y at once. load_by_fours() (cpu_vector.h) permutes
// these elements, so the queries and sums of such a tile are stored in the permuted order too.
template <class Y>
inline constexpr bool kReadsByFours = std::is_same_v<Y, Float8E4M3>;
constexpr std::int64_t kFours = 4 * kVecFloats;

// Returns the kernels for tiles of a few rows over a cache of int8. Returns null if the tile has many rows, if its
// cache has another type, or if there are no kernels for this machine and head size.
template <class Y>
TESSERA_INLINE const Int8RowKernels* own_kernels(const AttentionProblem& p, const AttentionTile& tile) {
  if constexpr (std::is_same_v<Y, Int8Cache>)
    if (has_few_rows(p, tile)) return int8_row_kernels(p.head_dim);
  return nullptr;
}

// Returns the index at which element `d` of a row of `count` elements is stored, both in the row's query and in its
// sums.
TESSERA_INLINE std::int64_t place_of(std::int64_t d, std::int64_t count, bool by_fours) {
  if (!by_fours || d >= count / kFours * kFours) return d;
  const std::int64_t in_run = d % kFours;
  return d - in_run + in_run % 4 * kVecFloats + in_run / 4;
}
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

TESSERA_INLINE KeyRange visible(const AttentionProblem& p, std::int64_t position) {
  const std::int64_t begin = p.window > 0 ? std::max<std::int64_t>(0, position - p.window + 1) : 0;
  return {begin, position + 1};
}

// Returns the row's index among the query heads of all tokens.
TESSERA_INLINE std::int64_t head_row(const AttentionProblem& p, const AttentionTile& tile, std::int64_t row) {
  const std::int64_t token = tile.query_start + row / p.group();
  return token * p.heads + tile.head * p.group() + row % p.group();
}

template <class X>
TESSERA_CPU_CLONES void load_queries(const AttentionProblem& p, const AttentionTile& tile, const AttentionScratch& s,
                                     bool by_fours) {
  const std::int64_t padded = p.padded_dim();
  const float scale = p.scale * scale_or_one(p.cache_scales.keys);
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    const X* from = reinterpret_cast<const X*>(p.q) + head_row(p, tile, tile.row_begin + r) * p.head_dim;
    float* to = s.q + r * padded;
    for (std::int64_t d = 0; d < p.head_dim; ++d) to[place_of(d, p.head_dim, by_fours)] = to_float(from[d]) * scale;
    for (std::int64_t d = p.head_dim; d < padded; ++d) to[d] = 0.0f;
    for (std::int64_t d = 0; d < padded; ++d) s.sums[r * padded + d] = 0.0f;
    // A sink acts like a key that has a zero value and comes before all other keys.
    const bool sink = p.sinks != nullptr;
    s.greatest[r] = sink ? p.sinks[tile.head * p.group() + (tile.row_begin + r) % p.group()] : kMinusInfinity;
    s.total[r] = sink ? 1.0f : 0.0f;
  }
}

template <class X>
TESSERA_CPU_CLONES void store_outputs(const AttentionProblem& p, const AttentionTile& tile, const AttentionScratch& s,
                                      bool by_fours) {
  const float scale = scale_or_one(p.cache_scales.values);
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    X* to = reinterpret_cast<X*>(p.out) + head_row(p, tile, tile.row_begin + r) * p.value_dim;
    const float* from = s.sums + r * p.padded_dim();
    const float factor = scale / s.total[r];
    for (std::int64_t d = 0; d < p.value_dim; ++d)
      to[d] = from_float<X>(from[place_of(d, p.value_dim, by_fours)] * factor);
  }
}

// Turns the row's raw scores of a block of keys into weights, and rescales the row's running sums to the new running
// max.
TESSERA_INLINE void update_row(const AttentionProblem& p, const AttentionScratch& s, std::int64_t row, KeyRange seen,
                               std::int64_t width) {
  float* scores = s.scores + row * kBlockKeys;
  if (p.softcap > 0)
    for (std::int64_t j = 0; j < width; ++j) scores[j] = p.softcap * fast_tanh(scores[j] / p.softcap);
  for (std::int64_t j = 0; j < seen.begin; ++j) scores[j] = kMinusInfinity;
  for (std::int64_t j = seen.end; j < width; ++j) scores[j] = kMinusInfinity;
  float greatest = s.greatest[row];
#pragma omp simd reduction(max : greatest)
  for (std::int64_t j = 0; j < width; ++j) greatest = scores[j] > greatest ? scores[j] : greatest;
  // If the row has not seen a key yet, `greatest` is -inf. The reference is then 0, because -inf - -inf would be NaN.
  const float reference = greatest == kMinusInfinity ? 0.0f : greatest;
  if (greatest != s.greatest[row]) {
    const float shrink = fast_exp(s.greatest[row] - reference);
    float* sums = s.sums + row * p.padded_dim();
    for (std::int64_t d = 0; d < p.padded_value_dim(); ++d) sums[d] *= shrink;
    s.total[row] *= shrink;
    s.greatest[row] = greatest;
  }
  float total = 0.0f;
#pragma omp simd reduction(+ : total)
  for (std::int64_t j = 0; j < width; ++j) {
    scores[j] = fast_exp(scores[j] - reference);
    total += scores[j];
  }
  s.total[row] += total;
}

// Loads the block's keys as float32, transposed. Keys that are not in `present` become zeros, up to key `width` - 1.
template <class Y>
TESSERA_INLINE void load_keys(const AttentionProblem& p, const AttentionScratch& s, KeyRange present,
                              std::int64_t width) {
  const std::int64_t whole = p.head_dim / kVecFloats * kVecFloats;
  for (std::int64_t first = 0; first < width; first += kVecFloats) {
    for (std::int64_t d = 0; d < whole; d += kVecFloats) {
      Vec16 rows[16];
      for (int j = 0; j < 16; ++j)
        rows[j] = first + j >= present.begin && first + j < present.end ? key_at<Y>(p, s, first + j).load(d) : Vec16{};
      transpose16(rows);
      for (int j = 0; j < 16; ++j) store16(s.keys + (d + j) * kBlockKeys + first, rows[j]);
    }
    for (std::int64_t j = first; j < first + kVecFloats; ++j) {
      const bool there = j >= present.begin && j < present.end;
      for (std::int64_t d = whole; d < p.head_dim; ++d)
        s.keys[d * kBlockKeys + j] = there ? key_at<Y>(p, s, j).number(d) : 0.0f;
    }
  }
}

template <class Y>
TESSERA_INLINE void load_values(const AttentionProblem& p, const AttentionScratch& s, KeyRange present,
                                std::int64_t width) {
  const std::int64_t padded = p.padded_dim();
  for (std::int64_t j = 0; j < width; ++j) {
    float* to = s.values + j * padded;
    std::int64_t d = 0;
    if (j >= present.begin && j < present.end) {
      const CacheRow<Y> from = value_at<Y>(p, s, j);
      for (; d + kVecFloats <= p.value_dim; d += kVecFloats) store16(to + d, from.load(d));
      for (; d < p.value_dim; ++d) to[d] = from.number(d);
    }
    for (; d < p.padded_value_dim(); ++d) to[d] = 0.0f;
  }
}

template <class Y>
TESSERA_INLINE void prefetch(const Y* row, std::int64_t count) {
  constexpr auto kLine = static_cast<std::int64_t>(64 / sizeof(Y));
  for (std::int64_t d = 0; d < count; d += kLine) __builtin_prefetch(row + d);
}

// Computes scores[r][j] = q[r] · key[j] for kRows rows r at once. The keys are read straight from the cache.
template <int kRows, class Y>
TESSERA_INLINE void dot_keys(const AttentionProblem& p, const AttentionScratch& s, std::int64_t row, KeyRange present) {
  const std::int64_t padded = p.padded_dim();
  const std::int64_t whole = p.head_dim / kVecFloats * kVecFloats;
  const float* q = s.q + row * padded;
  for (std::int64_t j = present.begin; j < present.end; ++j) {
    const CacheRow<Y> key = key_at<Y>(p, s, j);
    if (row == 0) {
      prefetch(reinterpret_cast<const Y*>(p.k_cache) + s.offsets[j + kPrefetchKeys], p.head_dim);
      prefetch(reinterpret_cast<const Y*>(p.v_cache) + s.offsets[j], p.value_dim);
    }
    Vec16 sum[kRows] = {};
    std::int64_t d = 0;
    if constexpr (kReadsByFours<Y>) {
      for (; d + kFours <= whole; d += kFours) {
        Vec16 k[4];
        load_by_fours(key.at + d, k);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i)
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) sum[r] += load16(q + r * padded + d + i * kVecFloats) * k[i];
      }
    }
    for (; d < whole; d += kVecFloats) {
      const Vec16 k = key.load(d);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r] += load16(q + r * padded + d) * k;
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      float dot = sum16(sum[r]);
      for (d = whole; d < p.head_dim; ++d) dot += q[r * padded + d] * key.number(d);
      s.scores[(row + r) * kBlockKeys + j] = dot;
    }
  }
}

// Computes sums[r][d + c] += Σ_j weight[r][j] · value[j][d + c] for kRows rows r and 16·kVecs columns c. The values j
// are read straight from the cache.
template <int kRows, int kVecs, class Y>
TESSERA_INLINE void add_value_columns(const AttentionProblem& p, const AttentionScratch& s, std::int64_t row,
                                      std::int64_t d, KeyRange present) {
  const std::int64_t padded = p.padded_dim();
  float* sums = s.sums + row * padded + d;
  const float* weights = s.scores + row * kBlockKeys;
  Vec16 sum[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) sum[r][i] = load16(sums + r * padded + i * kVecFloats);
  for (std::int64_t j = present.begin; j < present.end; ++j) {
    const CacheRow<Y> value = value_at<Y>(p, s, j);
    Vec16 v[kVecs];
    if constexpr (kReadsByFours<Y> && kVecs == 4) {
      load_by_fours(value.at + d, v);
    } else {
#pragma GCC unroll 4
      for (int i = 0; i < kVecs; ++i) v[i] = value.load(d + i * kVecFloats);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i)
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r][i] += splat16(weights[r * kBlockKeys + j]) * v[i];
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) store16(sums + r * padded + i * kVecFloats, sum[r][i]);
}

template <int kRows, class Y>
TESSERA_INLINE void add_values(const AttentionProblem& p, const AttentionScratch& s, std::int64_t row,
                               KeyRange present) {
  const std::int64_t padded = p.padded_dim();
  std::int64_t d = 0;
  for (; d + 4 * kVecFloats <= p.value_dim; d += 4 * kVecFloats) add_value_columns<kRows, 4, Y>(p, s, row, d, present);
  for (; d + kVecFloats <= p.value_dim; d += kVecFloats) add_value_columns<kRows, 1, Y>(p, s, row, d, present);
  for (std::int64_t j = present.begin; j < present.end && d < p.value_dim; ++j) {
    const CacheRow<Y> value = value_at<Y>(p, s, j);
    for (std::int64_t r = row; r < row + kRows; ++r)
      for (std::int64_t e = d; e < p.value_dim; ++e)
        s.sums[r * padded + e] += s.scores[r * kBlockKeys + j] * value.number(e);
  }
}

template <class Y>
TESSERA_CPU_CLONES void attend_to_cache(const AttentionProblem& p, const AttentionTile& tile,
                                        const AttentionScratch& s) {
  const std::int64_t rows = tile.rows();
  const std::int64_t padded = p.padded_dim();
  const std::int64_t first_position = tile.offset + tile.row_begin / p.group();
  const std::int64_t last_position = tile.offset + (tile.row_end - 1) / p.group();
  const KeyRange keys{visible(p, first_position).begin, last_position + 1};
  const Int8RowKernels* own = own_kernels<Y>(p, tile);
  const bool few = own == nullptr && has_few_rows(p, tile);
  if (own != nullptr) round_queries(p, s, rows);

  for (std::int64_t block = keys.begin / kBlockKeys * kBlockKeys; block < keys.end; block += kBlockKeys) {
    const KeyRange present{std::max(keys.begin, block) - block, std::min(keys.end, block + kBlockKeys) - block};
    const std::int64_t width = round_up(present.end, kVecFloats);
    find_rows<Y>(p, tile, s, block, present, keys.end);

    std::int64_t r = 0;
    if (own != nullptr) {
      own->dot_keys(p, s, rows, present);
    } else if (few) {
      for (; r + 4 <= rows; r += 4) dot_keys<4, Y>(p, s, r, present);
      if (r + 2 <= rows) dot_keys<2, Y>(p, s, r, present), r += 2;
      if (r < rows) dot_keys<1, Y>(p, s, r, present);
    } else {
      load_keys<Y>(p, s, present, width);
      gemm_block({s.q, padded, s.keys, kBlockKeys, s.scores, kBlockKeys, rows, width, p.head_dim, false});
    }

    for (r = 0; r < rows; ++r) {
      const KeyRange seen = visible(p, tile.offset + (tile.row_begin + r) / p.group());
      update_row(p, s, r,
                 {std::clamp<std::int64_t>(seen.begin - block, 0, width),
                  std::clamp<std::int64_t>(seen.end - block, 0, present.end)},
                 width);
    }

    r = 0;
    if (own != nullptr) {
      own->add_values(p, s, rows, present);
    } else if (few) {
      for (; r + 4 <= rows; r += 4) add_values<4, Y>(p, s, r, present);
      if (r + 2 <= rows) add_values<2, Y>(p, s, r, present), r += 2;
      if (r < rows) add_values<1, Y>(p, s, r, present);
    } else {
      load_values<Y>(p, s, present, width);
      gemm_block({s.scores, kBlockKeys, s.values, padded, s.sums, padded, rows, p.padded_value_dim(), width, true});
    }
  }
}

// Computes a tile's rows. The loop over the cache does not depend on the queries' type, so it is compiled once for each
// type of the cache, and not for each pair of types.
template <class X, class Y>
void attend(const AttentionProblem& p, const AttentionTile& tile, const AttentionScratch& s) {
  const bool by_fours = kReadsByFours<Y> && has_few_rows(p, tile);
  load_queries<X>(p, tile, s, by_fours);
  attend_to_cache<Y>(p, tile, s);
  store_outputs<X>(p, tile, s, by_fours);
}

}  // namespace

Result<AttendTile> find_attend_tile(ir::DType dtype, ir::DType cache_dtype) {
  return dispatch_dtype(dtype, "attention", [&]<class X>() -> Result<AttendTile> {
    return dispatch_cache_type(cache_dtype, "attention's cache",
                               [&]<class Y>() -> Result<AttendTile> { return AttendTile{attend<X, Y>}; });
  });
}

}  // namespace tessera
