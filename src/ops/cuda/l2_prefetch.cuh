// Brings what a kernel is about to read into the L2 cache, before it waits for the kernels ahead (cuda_launch.cuh).
// All stores of the device meet there, so that a line which is written later is read as it was written: any address
// that may be read may be asked for at any time. What a step reads once, such as a norm's weight, comes from memory
// otherwise, at the end of a chain of kernels that take little longer than that.
#pragma once

namespace tessera::cuda {

// The line of the address, which is a valid one.
__device__ inline void prefetch_to_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

}  // namespace tessera::cuda
