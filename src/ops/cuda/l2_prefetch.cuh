// Prefetches a kernel's data into the L2 cache, before the kernel waits for the preceding kernels (cuda_launch.cuh).
//
// All stores of the device go through the L2 cache, so a read after the prefetch gets the newest content, even if the
// line was written after the prefetch. Any address that may be read may therefore be prefetched at any time. A step
// reads some data only once, for example a norm's weight. Without the prefetch, a kernel would load this data from
// memory after it has waited. In a chain of short kernels, the load takes nearly as long as a kernel.
#pragma once

namespace tessera::cuda {

// Prefetches the cache line of the address, which must be valid.
__device__ inline void prefetch_to_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

}  // namespace tessera::cuda
