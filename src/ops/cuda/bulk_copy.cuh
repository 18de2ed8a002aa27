// Copies from global to shared memory by Hopper's copy engine, and the barriers in shared memory that tell when one has
// arrived (PTX: cp.async.bulk, mbarrier). For compute capability 9.0 on.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tessera::cuda {

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// A barrier whose phases end when `arrivals` threads have arrived, and the bytes expected of copies as well. Phases
// alternate between parity 0, the first, and 1. It lies in shared memory.
class SharedBarrier {
 public:
  // By one thread; before others use it: make_visible(), then __syncthreads().
  __device__ void init(std::uint32_t arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&state_)), "r"(arrivals) : "memory");
  }
  __device__ static void make_visible() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(&state_)) : "memory");
  }
  // Arrives, and the phase ends only after copies of so many bytes.
  __device__ void arrive_and_expect(std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(&state_)), "r"(bytes)
                 : "memory");
  }
  // Until the phase of this parity has ended. At most one phase may have ended since.
  __device__ void wait(std::uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared.b64 ended, [%0], %1;\n"
        "@!ended bra again;\n"
        "}\n" ::"r"(shared_address(&state_)),
        "r"(parity)
        : "memory");
  }
  __device__ std::uint32_t address() const { return shared_address(&state_); }

 private:
  std::uint64_t state_;
};

// Both addresses and `bytes` are multiples of 16. By one thread, after it has told the barrier what to expect.
__device__ inline void bulk_copy(void* to, const void* from, std::uint32_t bytes, SharedBarrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(barrier.address())
               : "memory");
}

}  // namespace tessera::cuda
