// Functions with which the computing warpgroups of a block of prefill attention (prefill_attention.cuh) synchronise,
// and with which their threads access shared memory.
#pragma once

#include <cstdint>

#include "tessera/ops/attention/prefill_attention.cuh"

namespace tessera::cuda::prefill {

// Functions that arrive or wait at named barriers of the block, which are separate from the barrier of __syncthreads().
__device__ inline void wait_for_turn(int warpgroup) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + warpgroup), "n"(kWarpgroups * kWarpgroup) : "memory");
}
__device__ inline void give_turn(int warpgroup) {
  asm volatile("bar.arrive %0, %1;" ::"r"(1 + warpgroup), "n"(kWarpgroups * kWarpgroup) : "memory");
}
__device__ inline void sync_warpgroup(int warpgroup) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + kWarpgroups + warpgroup), "n"(kWarpgroup) : "memory");
}

__device__ inline void meet_warpgroups() {
  asm volatile("bar.sync %0, %1;" ::"n"(1 + 2 * kWarpgroups), "n"(kWarpgroups * kWarpgroup) : "memory");
}

__device__ inline uint4 load_chunk(std::uint32_t from) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(from)
               : "memory");
  return x;
}
__device__ inline void store_chunk(std::uint32_t to, const uint4& x) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
__device__ inline void store_four(std::uint32_t to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}
__device__ inline float4 load_four(std::uint32_t from) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(from)
               : "memory");
  return x;
}
// Ensures that this thread's stores come before all asynchronous copies to shared memory that are issued later.
__device__ inline void let_copies_follow() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace tessera::cuda::prefill
