// Loads lines that a kernel will read into the L2 cache, before it waits for the kernels ahead (cuda_launch.cuh).
//
// All stores of the device go through the L2 cache, so a line that is written after the prefetch is still read with its
// new content. Any address that may be read may be prefetched at any time. Data that a step reads once, such as a
// norm's weight, would otherwise come from memory at the end of a chain of kernels that take little longer than that
// load.
#pragma once

namespace tessera::cuda {

// Prefetches the line of the address, which must be valid.
__device__ inline void prefetch_to_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

}  // namespace tessera::cuda
