/* my_add_norm(x X[*, D], residual X[*, D], w X[D]) {eps} → y X[*, D], sum X[*, D]
 *   sum = X(x + residual),  y = X(sum · 1/√(mean(sum²) + eps)) · w, computed in float32; X is float32 or bfloat16. */
#ifndef ADD_NORM_H
#define ADD_NORM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The result of binding: addresses, sizes and numbers. Rows are contiguous. */
typedef struct add_norm_call {
  const void* x;
  const void* residual;
  const void* w;
  void* y;
  void* sum;
  int64_t rows;
  int64_t cols;
  float eps;
  int32_t is_bf16; /* otherwise float32 */
} add_norm_call;

/* Launches on a cudaStream_t. Returns a cudaError_t; 0 on success. */
int add_norm_launch_cuda(const add_norm_call* call, void* stream);

#ifdef __cplusplus
}
#endif
#endif
