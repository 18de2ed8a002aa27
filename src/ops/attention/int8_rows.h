// Kernels for tiles of a few rows over a cache of int8, for AVX-512 and AVX2. Other machines, and heads whose size is
// no multiple of 32, use the kernels that attention_tile.cpp has for caches of any type.
//
// Scores are sums of integer products. A query is rounded to 16 bits with one scale. The rounding changes no element by
// more than 1/65534 of the query's greatest magnitude. The products of two neighbouring elements are added exactly. All
// other sums are float32, as in the other kernels. A row's result has the same bits whatever the tile's other rows are,
// and whichever lane of a vectorised loop processes a key.
#pragma once

#include <cstdint>

#include "tessera/ops/attention/attention_tile.h"
#include "tessera/ops/attention/cache_rows.h"

namespace tessera {

struct Int8RowKernels {
  const char* name;
  // Computes s.scores[r][j] for the rows r < `rows` of the tile and the keys j of `present`. May also write scores of
  // the block's other keys.
  void (*dot_keys)(const AttentionProblem& p, const AttentionScratch& s, std::int64_t rows, KeyRange present);
  // Multiplies the values by their weights s.scores, and adds the products to s.sums.
  void (*add_values)(const AttentionProblem& p, const AttentionScratch& s, std::int64_t rows, KeyRange present);
};

// Returns the kernels of this machine for heads of this size, or null.
const Int8RowKernels* int8_row_kernels(std::int64_t head_dim);
// Each of these functions returns the kernels of one instruction set, or null if the build or the machine does not have
// it.
const Int8RowKernels* int8_row_kernels_avx512();
const Int8RowKernels* int8_row_kernels_avx2();

// Rounds the tile's queries, which are in s.q, to 16 bits. Writes the rounded queries to s.keys and their scales to
// s.values, which tiles of a few rows do not use otherwise. A row with an infinity or a NaN gets the scale NaN.
void round_queries(const AttentionProblem& p, const AttentionScratch& s, std::int64_t rows);

}  // namespace tessera
