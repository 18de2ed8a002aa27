// Copies boxes of a tensor between global and shared memory by Hopper's copy engine (TMA; PTX: cp.async.bulk.tensor). A
// box can go to all blocks of a cluster at once. The file also has the fences and cluster barriers that these copies
// need, and functions that store to the shared memory of other blocks. The host encodes the tensor's map (tensor_map.h)
// and passes it as a kernel parameter (__grid_constant__). Elements of a box outside the tensor become zeros in shared
// memory, and count towards the bytes that a barrier expects.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "tessera/ops/cuda/bulk_copy.cuh"

namespace tessera::cuda {

// The maximum number of 16 KiB boxes that a block has in flight. It applies to the kernels that stream weights in a
// decode step. Most of these kernels run two blocks on each multiprocessor. Two boxes for each block keep the memory
// busy. A block that has a multiprocessor to itself may have twice as many. With more boxes, memory requests queue up,
// and the small reads at the start of the next kernel, such as those of its input x, wait behind them.
inline constexpr int kBoxesInFlight = 2;
inline constexpr int kLimitedBoxBytes = 16 << 10;

// Limits how many boxes are in flight at once, for a thread that copies boxes to a ring of slots. A box is in flight
// from when the thread asks for it until it has arrived. The thread fills the slots in turn, from slot 0 on.
class BoxesInFlight {
 public:
  // `most` is the maximum number of boxes in flight, and is not above `slots`. `full` points to the barriers of the
  // slots. A barrier's phase ends when a box arrives in its slot.
  __device__ BoxesInFlight(SharedBarrier* full, int slots, int most) : full_(full), slots_(slots), free_(most) {}
  // Waits until one more box may be in flight. The thread calls this function before it asks for a box.
  __device__ void wait_for_one() {
    if (free_ > 0) {
      --free_;
      return;
    }
    full_[oldest_].wait(turn_ & 1);
    if (++oldest_ == slots_) oldest_ = 0, ++turn_;
  }

 private:
  SharedBarrier* full_;
  int slots_;
  int free_;        // number of boxes that may be asked for without a wait
  int oldest_ = 0;  // the slot of the oldest box in flight, if free_ is 0
  std::uint32_t turn_ = 0;
};

__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies a box from the tensor. The coordinates are the position of the box's first element, fastest dimension first.
__device__ inline void copy_box(std::uint32_t to, const CUtensorMap& map, SharedBarrier& barrier, int c0, int c1,
                                int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(to),
      "l"(&map), "r"(barrier.address()), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}
__device__ inline void copy_box(std::uint32_t to, const CUtensorMap& map, SharedBarrier& barrier, int c0, int c1,
                                int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(to),
      "l"(&map), "r"(barrier.address()), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
__device__ inline void copy_box(std::uint32_t to, const CUtensorMap& map, SharedBarrier& barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          to),
      "l"(&map), "r"(barrier.address()), "r"(c0), "r"(c1)
      : "memory");
}
// Copies a box to the same address in several blocks of the cluster, namely those whose bits are set in `blocks`. In
// each of these blocks, the arriving bytes count for the barrier at the address of `barrier`.
__device__ inline void copy_box_to_all(std::uint32_t to, const CUtensorMap& map, SharedBarrier& barrier,
                                       std::uint16_t blocks, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5}], [%2], %3;" ::"r"(to),
      "l"(&map), "r"(barrier.address()), "h"(blocks), "r"(c0), "r"(c1)
      : "memory");
}
__device__ inline void copy_box_to_all(std::uint32_t to, const CUtensorMap& map, SharedBarrier& barrier,
                                       std::uint16_t blocks, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(to),
      "l"(&map), "r"(barrier.address()), "h"(blocks), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// Copies shared memory to the box at these coordinates. Elements outside the tensor are not written. One thread calls
// it. Before that, all threads that wrote the shared memory must have called let_copies_see_shared_stores() and met the
// calling thread at a barrier.
__device__ inline void store_box(const CUtensorMap& map, std::uint32_t from, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];\ncp.async.bulk.commit_group;" ::"l"(
          &map),
      "r"(from), "r"(c0), "r"(c1)
      : "memory");
}
// wait_for_stores_to_read() waits until this thread's box stores have read their shared memory. wait_for_stores() waits
// until these stores have completed.
__device__ inline void wait_for_stores_to_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ inline void wait_for_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// Orders this thread's earlier stores to shared memory before copies that read or write the same addresses. The copies
// must start after a barrier that follows this call.
__device__ inline void let_copies_see_shared_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Makes the stores of earlier kernels visible to the copies that this thread starts.
__device__ inline void let_copies_see_stores() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

__device__ inline unsigned block_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// The two halves of a barrier of all threads in all blocks of the cluster. A thread may do other work between arriving
// and waiting.
__device__ inline void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ inline void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// Arrives like arrive_at_cluster(), but makes no stores visible, except for barriers that the thread has initialised
// (SharedBarrier::make_visible()). It is faster than arrive_at_cluster(), because it need not wait until all stores
// have ended.
__device__ inline void arrive_at_cluster_early() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ inline void sync_cluster() {
  arrive_at_cluster();
  wait_for_cluster();
}
// Waits until all threads of the cluster have arrived, like sync_cluster(), but makes no stores visible. A block whose
// shared memory other blocks may still read must call this function before it ends.
__device__ inline void leave_cluster() {
  arrive_at_cluster_early();
  wait_for_cluster();
}
// Stores four neighbouring values in the shared memory of block `block` of the cluster, at the same offset that `own`
// has in this block's shared memory. The address of `own` is a multiple of 16 bytes. The other block's barrier at the
// offset of `arrived` counts the 16 bytes. The function does not wait for earlier stores.
__device__ inline void send_to_block(float* own, unsigned block, float4 values, const SharedBarrier& arrived) {
  asm volatile(
      "{\n"
      ".reg .b32 there, barrier;\n"
      "mapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 barrier, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%3, %4, %5, %6}, [barrier];\n"
      "}\n" ::"r"(shared_address(own)),
      "r"(arrived.address()), "r"(block), "f"(values.x), "f"(values.y), "f"(values.z), "f"(values.w)
      : "memory");
}
// Arrives at the barrier at the same address in another block of the cluster.
__device__ inline void arrive_at_block(std::uint32_t barrier, unsigned block) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(barrier),
      "r"(block)
      : "memory");
}
__device__ inline void arrive_at_block(const SharedBarrier& barrier, unsigned block) {
  arrive_at_block(barrier.address(), block);
}

}  // namespace tessera::cuda
