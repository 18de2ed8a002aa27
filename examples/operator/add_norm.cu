// The CUDA kernel of my_add_norm. Each row has one block.
#include <cuda_bf16.h>

#include "add_norm.h"

namespace {

constexpr int kThreads = 256;

__device__ float sum_of_block(float value) {
  __shared__ float of_warp[kThreads / 32];
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (const float part : of_warp) sum += part;  // always in this order, so that a row's bits are reproducible
  return sum;
}

template <class X>
__global__ void add_norm(add_norm_call c) {
  const long long row = static_cast<long long>(blockIdx.x) * c.cols;
  const X* x = static_cast<const X*>(c.x) + row;
  const X* residual = static_cast<const X*>(c.residual) + row;
  const X* w = static_cast<const X*>(c.w);
  X* y = static_cast<X*>(c.y) + row;
  X* sum = static_cast<X*>(c.sum) + row;
  float squares = 0;
  for (int i = threadIdx.x; i < c.cols; i += kThreads) {
    sum[i] = static_cast<X>(static_cast<float>(x[i]) + static_cast<float>(residual[i]));
    const float value = static_cast<float>(sum[i]);
    squares += value * value;
  }
  const float scale = 1.0f / sqrtf(sum_of_block(squares) / static_cast<float>(c.cols) + c.eps);
  for (int i = threadIdx.x; i < c.cols; i += kThreads) {
    const X normed = static_cast<X>(static_cast<float>(sum[i]) * scale);
    y[i] = static_cast<X>(static_cast<float>(normed) * static_cast<float>(w[i]));
  }
}

}  // namespace

extern "C" int add_norm_launch_cuda(const add_norm_call* call, void* stream) {
  if (call->rows == 0) return 0;
  const auto blocks = static_cast<unsigned>(call->rows);
  const auto on = static_cast<cudaStream_t>(stream);
  if (call->is_bf16) {
    add_norm<__nv_bfloat16><<<blocks, kThreads, 0, on>>>(*call);
  } else {
    add_norm<float><<<blocks, kThreads, 0, on>>>(*call);
  }
  return cudaGetLastError();
}
