// Contains copies from global to shared memory by Hopper's copy engine (TMA), and barriers in shared memory that signal
// when the bytes have arrived (PTX: cp.async.bulk, mbarrier). Needs compute capability 9.0 or newer.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tessera::cuda {

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// Waits until the phase with this parity has ended. FORM says where the barrier is and what the wait makes visible.
#define TESSERA_TRY_WAIT(FORM, ADDRESS, PARITY) \
  asm volatile(                                 \
      "{\n"                                     \
      ".reg .pred ended;\n"                     \
      "again:\n"                                \
      "mbarrier.try_wait.parity." FORM          \
      ".b64 ended, [%0], %1;\n"                 \
      "@!ended bra again;\n"                    \
      "}\n" ::"r"(ADDRESS),                     \
      "r"(PARITY)                               \
      : "memory")

// A barrier in shared memory. A phase ends when `arrivals` threads have arrived and the expected bytes of copies are in
// shared memory. Phases alternate between parity 0, which is the first, and parity 1.
class SharedBarrier {
 public:
  // Initialises the barrier. One thread calls it. Other threads may use the barrier after make_visible() and then
  // __syncthreads().
  __device__ void init(std::uint32_t arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&state_)), "r"(arrivals) : "memory");
  }
  __device__ static void make_visible() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

  __device__ void arrive() { arrive_at(shared_address(&state_)); }
  // Arrives, and makes the current phase wait until copies of `bytes` bytes have arrived too.
  __device__ void arrive_and_expect(std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(&state_)), "r"(bytes)
                 : "memory");
  }
  // Waits until the phase with this parity has ended. Precondition: no later phase has ended.
  __device__ void wait(std::uint32_t parity) { wait_at(shared_address(&state_), parity); }
  // The next two functions do what arrive() and wait() do, but take the barrier's address in shared memory.
  __device__ static void arrive_at(std::uint32_t address) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address) : "memory");
  }
  __device__ static void wait_at(std::uint32_t address, std::uint32_t parity) {
    TESSERA_TRY_WAIT("shared", address, parity);
  }
  // Waits like wait(), and makes visible what other blocks of the cluster stored with send_to_block() (box_copy.cuh).
  __device__ void wait_for_cluster_stores(std::uint32_t parity) {
    TESSERA_TRY_WAIT("acquire.cluster.shared::cta", shared_address(&state_), parity);
  }
  __device__ std::uint32_t address() const { return shared_address(&state_); }

 private:
  std::uint64_t state_;
};
#undef TESSERA_TRY_WAIT

// Starts a copy. Both addresses and `bytes` are multiples of 16. One thread calls it, after it has told the barrier how
// many bytes to expect.
__device__ inline void bulk_copy(std::uint32_t to, const void* from, std::uint32_t bytes, SharedBarrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier.address())
               : "memory");
}
__device__ inline void bulk_copy(void* to, const void* from, std::uint32_t bytes, SharedBarrier& barrier) {
  bulk_copy(shared_address(to), from, bytes, barrier);
}

}  // namespace tessera::cuda
