// Code shared by the matmuls that use Hopper's warpgroup instructions (wgmma): the ring of stages in shared memory, the
// computation of a tile's sums, and their conversion to rows of the result.
//
// Weights are the instructions' A operand, which has 64 weight rows for each warpgroup. Rows of x are the B operand,
// and their number may be any multiple of 32 up to 256. A tile therefore has only as many rows of x as it needs,
// rounded up to a multiple of 32, and little work is wasted.
//
// One thread of a block starts the copies. The warpgroup of this thread gives registers to the two other warpgroups,
// each of which multiplies 64 weight rows by all of the tile's rows of x. Stages of 64 columns go through the ring,
// without a pause between tiles. The two multiplying warpgroups synchronise only at the ring, so that one can store its
// results while the other multiplies. The blocks of a cluster compute neighbouring weight rows for the same rows of x,
// and share the copies of x.
#pragma once

#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/wgmma.cuh"

namespace tessera::cuda {

inline constexpr int kHopperCluster = 2;
inline constexpr int kHopperWeightRows = 128;
inline constexpr int kHopperRows = 256;  // rows of x in a tile
inline constexpr int kHopperStep = 32;   // the number of rows of x in a tile is a multiple of this
inline constexpr int kHopperDepth = 64;  // columns of w and x in a stage; they take 128 bytes of each row
inline constexpr int kHopperStages = 4;
inline constexpr int kHopperWarpgroups = 2;
inline constexpr int kHopperThreads = (kHopperWarpgroups + 1) * kWarpgroup;
inline constexpr int kHopperRowBytes = kHopperDepth * 2;
inline constexpr int kHopperStageBytes = (kHopperWeightRows + kHopperRows) * kHopperRowBytes;
static_assert(kHopperRows == 2 * kMostProductSums && kHopperStep % (8 * kHopperCluster) == 0);

// A position in the ring: the slot, and the number of completed rounds.
struct RingPlace {
  int slot = 0;
  std::uint32_t turn = 0;
  __device__ void advance() {
    if (++slot == kHopperStages) {
      slot = 0;
      ++turn;
    }
  }
};

// The ring of a block in shared memory.
struct HopperRing {
  std::uint32_t base;    // address of the stages
  SharedBarrier* full;   // [kHopperStages]
  SharedBarrier* empty;  // [kHopperStages]; warps of all blocks of the cluster arrive here
  __device__ std::uint32_t weights(int slot) const {
    return base + static_cast<std::uint32_t>(slot) * kHopperStageBytes;
  }
  __device__ std::uint32_t rows(int slot) const { return weights(slot) + kHopperWeightRows * kHopperRowBytes; }
  __device__ void release(int slot) const {
    if (const unsigned block = threadIdx.x % kWarp; block < kHopperCluster) arrive_at_block(empty[slot], block);
  }
};

// Initialises the barriers. One thread of the block calls prepare() before the cluster's blocks synchronise.
__device__ inline void prepare(const HopperRing& ring) {
  for (int s = 0; s < kHopperStages; ++s) {
    ring.full[s].init(1);
    ring.empty[s].init(kHopperCluster * kHopperWarpgroups * kWarpgroup / kWarp);
  }
  SharedBarrier::make_visible();
}

// Calls f.template operator()<kN>(), where kN is the smallest tile size that holds `rows` rows of x.
template <class F>
__device__ inline void with_tile_size(int rows, const F& f) {
  switch ((rows + kHopperStep - 1) / kHopperStep) {
    case 1: return f.template operator()<32>();
    case 2: return f.template operator()<64>();
    case 3: return f.template operator()<96>();
    case 4: return f.template operator()<128>();
    case 5: return f.template operator()<160>();
    case 6: return f.template operator()<192>();
    case 7: return f.template operator()<224>();
    default: return f.template operator()<256>();
  }
}

// Computes the sums of a tile of kN rows of x, from stages of kHopperDepth columns each. The products of a stage are
// started before the products of the previous stage have ended.
template <class T, int kN>
__device__ inline void multiply_tile_of(float (&sum)[kMostProductSums], const HopperRing& ring, RingPlace& at,
                                        int stages, int warpgroup) {
  int last = 0;
  for (int s = 0; s < stages; ++s) {
    ring.full[at.slot].wait(at.turn & 1);
    const std::uint64_t a =
        matrix_at(ring.weights(at.slot) + static_cast<std::uint32_t>(warpgroup) * 64 * kHopperRowBytes);
    const std::uint64_t b = matrix_at(ring.rows(at.slot));
    begin_products();
#pragma unroll
    for (int d = 0; d < kHopperDepth / 16; ++d) multiply<T, kN>(sum, a + d * kMatrixStep, b + d * kMatrixStep, s + d);
    end_products();
    wait_for_products<1>();
    if (s > 0) ring.release(last);
    last = at.slot;
    at.advance();
  }
  wait_for_products<0>();
  ring.release(last);
}

template <class T>
__device__ inline void multiply_tile_of(float (&sum)[kMostProductSums], const HopperRing& ring, RingPlace& at,
                                        int stages, int warpgroup, int rows) {
  with_tile_size(rows, [&]<int kN>() { multiply_tile_of<T, kN>(sum, ring, at, stages, warpgroup); });
}

}  // namespace tessera::cuda
