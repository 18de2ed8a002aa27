#include "tessera/ops/recurrent/delta_net_head.h"

#include <algorithm>

#include "tessera/ops/cpu/cpu_vector.h"
#include "tessera/ops/linear/cpu_gemm.h"

namespace tessera {
namespace {

// The operands of one row of a head. The functions below compute some columns at a time, so that these columns of the
// state stay in the L1 cache between the two passes over them.
struct Columns {
  const float* query;
  const float* key;
  const float* value;
  float* out;
  float* state;  // [key_dim, value_dim]
  float decay;
  float beta;
  std::int64_t key_dim;
  std::int64_t value_dim;
};

template <int kVecs>
TESSERA_INLINE void recur_vectors(const Columns& c, std::int64_t col) {
  Vec16 found[kVecs] = {};
  float* const state = c.state + col;
  for (std::int64_t i = 0; i < c.key_dim; ++i) {
    const Vec16 k = splat16(c.key[i]);
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) found[v] += k * load16(state + i * c.value_dim + v * kVecFloats);
  }
  Vec16 change[kVecs];
  Vec16 out[kVecs] = {};
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) change[v] = (load16(c.value + col + v * kVecFloats) - found[v] * c.decay) * c.beta;
  for (std::int64_t i = 0; i < c.key_dim; ++i) {
    const Vec16 k = splat16(c.key[i]);
    const Vec16 q = splat16(c.query[i]);
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      float* const at = state + i * c.value_dim + v * kVecFloats;
      const Vec16 next = load16(at) * c.decay + k * change[v];
      store16(at, next);
      out[v] += q * next;
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) store16(c.out + col + v * kVecFloats, out[v]);
}

TESSERA_INLINE void recur_column(const Columns& c, std::int64_t col) {
  float found = 0;
  for (std::int64_t i = 0; i < c.key_dim; ++i) found += c.key[i] * c.state[i * c.value_dim + col];
  const float change = (c.value[col] - found * c.decay) * c.beta;
  float out = 0;
  for (std::int64_t i = 0; i < c.key_dim; ++i) {
    float& at = c.state[i * c.value_dim + col];
    at = at * c.decay + c.key[i] * change;
    out += c.query[i] * at;
  }
  c.out[col] = out;
}

TESSERA_CPU_CLONES void recur_columns(const Columns& c) {
  std::int64_t col = 0;
  for (; col + 4 * kVecFloats <= c.value_dim; col += 4 * kVecFloats) recur_vectors<4>(c, col);
  for (; col + kVecFloats <= c.value_dim; col += kVecFloats) recur_vectors<1>(c, col);
  for (; col < c.value_dim; ++col) recur_column(c, col);
}

TESSERA_CPU_CLONES void scale_floats(float* x, std::int64_t n, float factor) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// Computes y -= factor · x.
TESSERA_CPU_CLONES void subtract_floats(float* y, const float* x, std::int64_t n, float factor) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] -= factor * x[i];
}

// On entry, keys_keys[i, j] is k_i·k_j and query_keys[i, j] is q_i·k_j. Multiplies keys_keys by
// -beta_i · exp(G_i - G_j) for j < i, and query_keys by exp(G_i - G_j) for j <= i. All other elements become zero.
// `sums` holds G.
TESSERA_CPU_CLONES void apply_decay(float* keys_keys, float* query_keys, const float* sums, const float* betas,
                                    std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    float* const kk = keys_keys + i * kDeltaChunk;
    float* const qk = query_keys + i * kDeltaChunk;
#pragma omp simd
    for (std::int64_t j = 0; j < kDeltaChunk; ++j) {
      const float decay = j <= i ? fast_exp(sums[i] - sums[j]) : 0.0f;
      kk[j] = j < i ? -betas[i] * decay * kk[j] : 0.0f;
      qk[j] = j <= i ? decay * qk[j] : 0.0f;
    }
  }
}

constexpr std::int64_t kSolveRows = 16;

// Solves u_i = rhs_i + Σ_{j<i} matrix[i, j] · u_j in place, one block of rows after the other. For each block, a matrix
// product adds the terms of all earlier blocks.
void solve_lower(const float* matrix, float* u, std::int64_t count, std::int64_t cols) {
  for (std::int64_t first = 0; first < count; first += kSolveRows) {
    const std::int64_t end = std::min(count, first + kSolveRows);
    if (first > 0)
      gemm_block({.a = matrix + first * kDeltaChunk,
                  .a_stride = kDeltaChunk,
                  .b = u,
                  .b_stride = cols,
                  .c = u + first * cols,
                  .c_stride = cols,
                  .m = end - first,
                  .n = cols,
                  .k = first,
                  .accumulate = true});
    for (std::int64_t i = first + 1; i < end; ++i)
      for (std::int64_t j = first; j < i; ++j)
        subtract_floats(u + i * cols, u + j * cols, cols, -matrix[i * kDeltaChunk + j]);
  }
}

}  // namespace

void recur_delta_row(const DeltaRows& rows, std::int64_t row, const DeltaSizes& sizes, float* state) {
  recur_columns({.query = rows.queries + row * sizes.key_dim,
                 .key = rows.keys + row * sizes.key_dim,
                 .value = rows.values + row * sizes.value_dim,
                 .out = rows.out + row * sizes.value_dim,
                 .state = state,
                 .decay = fast_exp(rows.gates[row]),
                 .beta = rows.betas[row],
                 .key_dim = sizes.key_dim,
                 .value_dim = sizes.value_dim});
}

void run_delta_chunk(const DeltaRows& rows, std::int64_t count, const DeltaSizes& sizes, const DeltaScratch& scratch,
                     float* state) {
  const std::int64_t dk = sizes.key_dim;
  const std::int64_t dv = sizes.value_dim;
  for (std::int64_t i = 0; i < dk; ++i)
    for (std::int64_t j = 0; j < kDeltaChunk; ++j)
      scratch.keys_t[i * kDeltaChunk + j] = j < count ? rows.keys[j * dk + i] : 0;
  const GemmBlock by_keys{.a = rows.keys,
                          .a_stride = dk,
                          .b = scratch.keys_t,
                          .b_stride = kDeltaChunk,
                          .c = scratch.keys_keys,
                          .c_stride = kDeltaChunk,
                          .m = count,
                          .n = kDeltaChunk,
                          .k = dk,
                          .accumulate = false};
  gemm_block(by_keys);
  GemmBlock queries_by_keys = by_keys;
  queries_by_keys.a = rows.queries;
  queries_by_keys.c = scratch.query_keys;
  gemm_block(queries_by_keys);

  float sums[kDeltaChunk] = {};
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sums[i] = sum += rows.gates[i];
  apply_decay(scratch.keys_keys, scratch.query_keys, sums, rows.betas, count);

  // `values` becomes, in place, the right-hand side of the system: beta_i · (v_i - exp(G_i) · Sᵀk_i). solve_lower()
  // then replaces this right-hand side by the solution u.
  GemmBlock by_state{.a = rows.keys,
                     .a_stride = dk,
                     .b = state,
                     .b_stride = dv,
                     .c = rows.out,
                     .c_stride = dv,
                     .m = count,
                     .n = dv,
                     .k = dk,
                     .accumulate = false};
  gemm_block(by_state);
  for (std::int64_t i = 0; i < count; ++i) {
    subtract_floats(rows.values + i * dv, rows.out + i * dv, dv, fast_exp(sums[i]));
    scale_floats(rows.values + i * dv, dv, rows.betas[i]);
  }
  solve_lower(scratch.keys_keys, rows.values, count, dv);

  for (std::int64_t i = 0; i < count; ++i) scale_floats(rows.queries + i * dk, dk, fast_exp(sums[i]));
  by_state.a = rows.queries;
  gemm_block(by_state);
  const GemmBlock by_changes{.a = scratch.query_keys,
                             .a_stride = kDeltaChunk,
                             .b = rows.values,
                             .b_stride = dv,
                             .c = rows.out,
                             .c_stride = dv,
                             .m = count,
                             .n = dv,
                             .k = count,
                             .accumulate = true};
  gemm_block(by_changes);

  scale_floats(state, dk * dv, fast_exp(sum));
  float left[kDeltaChunk] = {};  // exp(G_n - G_j): the decay of row j's change until the last row
  for (std::int64_t j = 0; j < count; ++j) left[j] = fast_exp(sum - sums[j]);
  for (std::int64_t i = 0; i < dk; ++i)
    for (std::int64_t j = 0; j < count; ++j) scratch.keys_t[i * kDeltaChunk + j] *= left[j];
  GemmBlock to_state = by_changes;
  to_state.a = scratch.keys_t;
  to_state.c = state;
  to_state.m = dk;
  gemm_block(to_state);
}

}  // namespace tessera
