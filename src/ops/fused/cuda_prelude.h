// kCudaPrelude is the start of every generated CUDA kernel. It defines storage types and their conversions,
// vectors of several elements that are loaded and stored at once (Pack), and sums over lanes and blocks. The prelude
// repeats code of ops/cuda/cuda_math.cuh, because NVRTC could compile that file only with the toolkit's
// headers.
#pragma once

namespace tessera {

inline constexpr const char* kCudaPrelude = R"(
typedef long long i64;
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
typedef float f32;

__device__ inline float to_float(f32 x) { return x; }
__device__ inline float to_float(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
__device__ inline float to_float(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
template <class T> __device__ inline T from_float(float x);
template <> __device__ inline f32 from_float<f32>(float x) { return x; }
template <> __device__ inline bf16 from_float<bf16>(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <> __device__ inline f16 from_float<f16>(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <class T> __device__ inline float rounded(float x) { return to_float(from_float<T>(x)); }

template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T at[N]; };
template <class T, int N> __device__ inline Pack<T, N> load(const void* base, i64 element) {
  return *reinterpret_cast<const Pack<T, N>*>(static_cast<const T*>(base) + element);
}
template <class T, int N> __device__ inline void store(void* base, i64 element, const float* values) {
  Pack<T, N> pack;
#pragma unroll
  for (int j = 0; j < N; ++j) pack.at[j] = from_float<T>(values[j]);
  *reinterpret_cast<Pack<T, N>*>(static_cast<T*>(base) + element) = pack;
}

// Returns x · sigmoid(u). If u is below -88, the quotient is 0, which is the limit.
__device__ inline float times_sigmoid(float x, float u) { return __fdividef(x, 1.0f + expf(-u)); }
__device__ inline float silu(float x) { return times_sigmoid(x, x); }
__device__ inline float gelu_tanh(float x) {
  return times_sigmoid(x, 1.5957691216057308f * (x + 0.044715f * x * x * x));
}
__device__ inline float gelu_erf(float x) { return 0.5f * x * erfcf(x * -0.70710678118654752f); }

template <int kLanes> __device__ inline float lane_sum(float x) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}
// Returns the sum of x over a block of kThreads threads, in every thread. Each call in a kernel needs its own scratch.
template <int kThreads> __device__ inline float block_sum(float x, float* scratch) {
  const int lane = threadIdx.x % 32;
  x = lane_sum<32>(x);
  if (lane == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  return lane_sum<32>(lane < kThreads / 32 ? scratch[lane] : 0.0f);
}

__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
)";

}  // namespace tessera
