#include "tessera/ops/linear/cpu_gemm.h"

#include "tessera/ops/cpu/cpu_vector.h"

namespace tessera {
namespace {

// Computes a tile of c with kRows rows and 16 · kVecs columns. Its sums stay in registers during the loop over k.
template <int kRows, int kVecs>
TESSERA_INLINE void register_tile(const GemmBlock& g, std::int64_t row, std::int64_t col) {
  const float* a = g.a + row * g.a_stride;
  const float* b = g.b + col;
  float* c = g.c + row * g.c_stride + col;
  Vec16 sum[kRows][kVecs];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) sum[i][j] = g.accumulate ? load16(c + i * g.c_stride + j * kVecFloats) : Vec16{};
  for (std::int64_t p = 0; p < g.k; ++p) {
    Vec16 b_row[kVecs];
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) b_row[j] = load16(b + p * g.b_stride + j * kVecFloats);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vec16 a_value = splat16(a[i * g.a_stride + p]);
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j) sum[i][j] += a_value * b_row[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) store16(c + i * g.c_stride + j * kVecFloats, sum[i][j]);
}

template <int kVecs>
TESSERA_INLINE void column_strip(const GemmBlock& g, std::int64_t col) {
  std::int64_t row = 0;
  for (; row + 6 <= g.m; row += 6) register_tile<6, kVecs>(g, row, col);
  if (row + 4 <= g.m) register_tile<4, kVecs>(g, row, col), row += 4;
  if (row + 2 <= g.m) register_tile<2, kVecs>(g, row, col), row += 2;
  if (row < g.m) register_tile<1, kVecs>(g, row, col);
}

// Returns whether a tile of 6 rows and 64 columns fits the registers. This tile needs 32 registers of 16 floats. With
// fewer or narrower registers, only a tile of 6 rows and 16 columns fits.
bool wide_registers() {
#if defined(__x86_64__) && defined(__GNUC__)
  return __builtin_cpu_supports("avx512f") != 0;
#else
  return false;
#endif
}

TESSERA_CPU_CLONES void multiply(const GemmBlock& g, bool wide) {
  std::int64_t col = 0;
  if (wide)
    for (; col + 4 * kVecFloats <= g.n; col += 4 * kVecFloats) column_strip<4>(g, col);
  for (; col < g.n; col += kVecFloats) column_strip<1>(g, col);
}

}  // namespace

void gemm_block(const GemmBlock& block) { multiply(block, wide_registers()); }

}  // namespace tessera
