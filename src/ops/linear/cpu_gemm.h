// Multiplies blocks of float32 matrices on one thread. The blocks fit the cache. Attention's prefill and the CPU's
// linears use this product. Callers convert and pack the operands, and divide the work among threads.
#pragma once

#include <cstdint>

namespace tessera {

// Computes c[m, n] = a[m, k] · b[k, n], plus the old c if `accumulate` is set. A stride is the number of floats between
// rows. The products of an element are added in increasing order of k, whatever m and n are.
struct GemmBlock {
  const float* a;
  std::int64_t a_stride;
  const float* b;
  std::int64_t b_stride;
  float* c;
  std::int64_t c_stride;
  std::int64_t m;
  std::int64_t n;  // a multiple of 16; callers pad their blocks to it
  std::int64_t k;
  bool accumulate;
};

void gemm_block(const GemmBlock& block);

}  // namespace tessera
