// Copies of boxes of a tensor to shared memory by Hopper's copy engine (PTX: cp.async.bulk.tensor), also to all blocks
// of a cluster at once, and what blocks of a cluster need for it. The tensor's map is encoded on the host
// (tensor_map.h) and is a kernel's parameter (__grid_constant__). Elements outside the tensor arrive as zeros and count
// as bytes.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "tessera/ops/cuda/bulk_copy.cuh"

namespace tessera::cuda {

__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Coordinates are those of the box's first element, fastest first.
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
// To the same place in each block of the cluster whose bit is set, where the barrier at the same place is told.
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

// From shared memory to the box at these coordinates; elements outside the tensor are left out. By one thread, after
// all who wrote the shared memory have called let_copies_see_shared_stores() and met it.
__device__ inline void store_box(const CUtensorMap& map, std::uint32_t from, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];\ncp.async.bulk.commit_group;" ::"l"(
          &map),
      "r"(from), "r"(c0), "r"(c1)
      : "memory");
}
// Until the stores that this thread asked for have read their shared memory; until they have ended.
__device__ inline void wait_for_stores_to_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ inline void wait_for_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
__device__ inline void let_copies_see_shared_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// What kernels before this one stored, for the copies that this thread asks for.
__device__ inline void let_copies_see_stores() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// What this thread stored to shared memory comes before copies to the same place that are asked for after a barrier.
__device__ inline void let_copies_follow_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ inline unsigned block_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All threads of all blocks of the cluster meet: each arrives and waits, and may do something of its own between.
__device__ inline void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ inline void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ inline void sync_cluster() {
  arrive_at_cluster();
  wait_for_cluster();
}
// At the barrier that lies at the same place of another block of the cluster.
__device__ inline void arrive_at_block(const SharedBarrier& barrier, unsigned block) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(barrier.address()),
      "r"(block)
      : "memory");
}

}  // namespace tessera::cuda
