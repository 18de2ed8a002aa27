// Computes moe_experts' matmuls on Hopper, for a prefill (hopper_matmul.cuh). The rows of x are an expert's tokens. A
// tile is only as wide as its expert's rows require, in steps of 32, because fixed tiles of 128 tokens would compute a
// quarter more products if experts have 256 rows on average.
//
// The grid has as many blocks as the device runs at once. Cluster c of n clusters takes the items c, c + n, c + 2n, ….
// An item is the product of one tile of x, from the list that order_rows() made, and one range of weight rows. The
// kernel reads the number of tiles from device memory, so a recorded graph works for any choice of the router.
//
// For gate and up, the tensor map of w places in shared memory 8 gate rows beside the 8 up rows that belong to the same
// columns of y. A thread therefore has both sums of an element. The rows of x past a tile's last row belong to another
// expert or to an earlier forward. They are multiplied too, up to the tile's width, but their results are not stored.
//
// The time is bounded by 6 · H · I operations for each pair of a token and one of its experts (H: hidden size, I:
// intermediate size), at the 989 dense TFLOP/s of an H200.
#pragma once

#include "tessera/ops/linear/hopper_matmul.cuh"
#include "tessera/ops/moe/moe_experts.cuh"

namespace tessera::cuda::moe {

// Each warpgroup has two buffers in shared memory for its results. A buffer holds 32 tokens by the warpgroup's columns.
// Its rows have 16 bytes of padding, which avoids bank conflicts between eight rows.
template <bool kGateUp>
inline constexpr int kResultColumns = kGateUp ? 32 : 64;
template <bool kGateUp>
inline constexpr int kResultRowBytes = kResultColumns<kGateUp> * 2 + 16;
template <bool kGateUp>
inline constexpr int kResultBytes = kHopperStep* kResultRowBytes<kGateUp>;
template <bool kGateUp>
inline constexpr int kHopperShared =
    1024 + kHopperStages* kHopperStageBytes + 2 * kHopperWarpgroups* kResultBytes<kGateUp>;
static_assert(kHopperShared<false> <= 232448 - 1024, "a block may have 232448 bytes; 1024 of them hold the barriers");

// The arguments of one of the two matmuls (moe_experts.cuh). The matmul runs over the tiles of `order`.
template <class T>
struct HopperMatmul {
  CUtensorMap x;  // the map of [rows, k], in boxes of kHopperStep / kHopperCluster rows
  CUtensorMap w;  // the map of [experts, groups of 16 rows, halves, 8, k], in boxes of kHopperWeightRows rows
  const T* bias;  // [experts, w_rows]; null without a bias
  T* y;           // [rows, n]
  int n;
  int k;
  int w_rows;
  GatedActivation activation;
  float limit;
  Order order;
};

// Issues all copies of the block, in the order in which the block needs them. Only one thread calls this function.
template <class T>
__device__ inline void copy_tiles(const HopperMatmul<T>& p, const HopperRing& ring, int items, int across, int stages) {
  const unsigned rank = block_in_cluster();
  const int clusters = static_cast<int>(gridDim.x) / kHopperCluster;
  RingPlace at;
  for (int i = static_cast<int>(blockIdx.x) / kHopperCluster; i < items; i += clusters) {
    const Tile tile = p.order.tiles[i / across];
    const int group = (i % across * kHopperCluster + static_cast<int>(rank)) * (kHopperWeightRows / 16);
    const int steps = (tile.rows + kHopperStep - 1) / kHopperStep;
    const int bytes = (kHopperWeightRows + steps * kHopperStep) * kHopperRowBytes;
    for (int s = 0; s < stages; ++s, at.advance()) {
      SharedBarrier& full = ring.full[at.slot];
      if (at.turn > 0) ring.empty[at.slot].wait((at.turn - 1) & 1);
      full.arrive_and_expect(static_cast<std::uint32_t>(bytes));
      copy_box(ring.weights(at.slot), p.w, full, s * kHopperDepth, 0, 0, group, tile.expert);
      constexpr int kShare = kHopperStep / kHopperCluster;
      for (int step = 0; step < steps; ++step) {
        const int row = step * kHopperStep + static_cast<int>(rank) * kShare;
        const std::uint32_t to = ring.rows(at.slot) + static_cast<std::uint32_t>(row * kHopperRowBytes);
        copy_box_to_all(to, p.x, full, (1 << kHopperCluster) - 1, s * kHopperDepth, tile.first + row);
      }
    }
  }
}

// Returns activate() of two elements, packed into a word.
template <class T, GatedActivation kActivation>
__device__ inline std::uint32_t activate_two(float2 gate, float2 up, float limit) {
  gate = rounded_two<T>(gate.x, gate.y);
  up = rounded_two<T>(up.x, up.y);
  if constexpr (kActivation == GatedActivation::kClampedSwiglu) {
    const auto one = [limit](float g, float u) {
      g = g > limit ? limit : g;
      u = u > limit ? limit : u < -limit ? -limit : u;
      return times_sigmoid(g, kSwigluAlpha * g) * (u + 1.0f);
    };
    return pack_two<T>(one(gate.x, up.x), one(gate.y, up.y));
  } else {
    using Gate = std::conditional_t<kActivation == GatedActivation::kSwiglu, Silu, GeluTanh>;
    const float2 activated = rounded_two<T>(Gate{}(gate.x), Gate{}(gate.y));
    return pack_two<T>(activated.x * up.x, activated.y * up.y);
  }
}

// Writes a warpgroup's results of a tile to rows of y, through shared memory. A thread holds the sums of neighbouring
// tokens. `column` is the warpgroup's first column. `results` has two buffers; `turn` counts their uses. kOrder (for
// gate and up) is the order in which columns are stored.
template <class T, bool kGateUp, ColumnOrder kOrder, GatedActivation kActivation>
__device__ inline void store_results_of(const HopperMatmul<T>& p, const float (&sum)[kMostProductSums],
                                        const Tile& tile, int column, int warpgroup, unsigned char* results,
                                        int& turn) {
  constexpr int kHalves = kGateUp ? 1 : 2;  // for down, a warp's 16 weight rows give two halves of 8 columns of y
  constexpr int kPacks = kResultColumns<kGateUp> / 8;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const int mine = column + warp * kHalves * 8 + lane / 4;
  const auto bias_of = [&](int c) {
    return p.bias == nullptr || c >= p.w_rows ? 0.0F
                                              : to_float(p.bias[static_cast<std::int64_t>(tile.expert) * p.w_rows + c]);
  };
  const float bias[2] = {bias_of(mine), bias_of(kGateUp ? p.n + mine : mine + 8)};
#pragma unroll
  for (int pass = 0; pass < kHopperRows / kHopperStep; ++pass) {
    if (pass * kHopperStep >= tile.rows) break;
    unsigned char* const buffer = results + (turn & 1) * kResultBytes<kGateUp>;
    ++turn;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      std::uint32_t matrices[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* const s = &sum[(pass * 4 + j) * 4];
        if constexpr (kGateUp) {
          matrices[j] = activate_two<T, kActivation>(make_float2(s[0] + bias[0], s[1] + bias[0]),
                                                     make_float2(s[2] + bias[1], s[3] + bias[1]), p.limit);
        } else {
          matrices[j] = pack_two<T>(s[2 * half] + bias[half], s[2 * half + 1] + bias[half]);
        }
      }
      store_matrices<true>(shared_address(buffer) + static_cast<std::uint32_t>(lane * kResultRowBytes<kGateUp> +
                                                                               (warp * kHalves + half) * 16),
                           matrices);
    }
    // One barrier per pass is enough: before a thread writes a buffer again, it passes another barrier, and the other
    // threads read the buffer before that barrier.
    asm volatile("bar.sync %0, %1;" ::"r"(1 + warpgroup), "n"(kWarpgroup) : "memory");
#pragma unroll
    for (int i = 0; i < kHopperStep * kPacks / kWarpgroup; ++i) {
      const int token = (i * kWarpgroup + thread) / kPacks;
      const int pack = thread % kPacks;
      const int c = column + pack * 8;
      const int row = pass * kHopperStep + token;
      const T* const of_token = reinterpret_cast<const T*>(buffer + token * kResultRowBytes<kGateUp>);
      Pack<T, 8> values;
      if constexpr (kOrder == ColumnOrder::kPaired) {
#pragma unroll
        for (int j = 0; j < 8; ++j) values.at[j] = of_token[4 * j + pack];
      } else if constexpr (kOrder == ColumnOrder::kAlternating) {
#pragma unroll
        for (int j = 0; j < 8; ++j) values.at[j] = of_token[pack / 2 * 16 + 2 * j + pack % 2];
      } else {
        values = load_pack<T, 8>(of_token + pack * 8);
      }
      if (row < tile.rows && c < p.n) store_pack(p.y + static_cast<std::int64_t>(tile.first + row) * p.n + c, values);
    }
  }
}

// Calls store_results_of() with the problem's activation. The activation is chosen outside of the unrolled code,
// because the instruction cache could not hold the code of all activations for every unrolled result.
template <class T, bool kGateUp, ColumnOrder kOrder = ColumnOrder::kGiven>
__device__ inline void store_results(const HopperMatmul<T>& p, const float (&sum)[kMostProductSums], const Tile& tile,
                                     int column, int warpgroup, unsigned char* results, int& turn) {
  using enum GatedActivation;
  if (!kGateUp || p.activation == kSwiglu)
    return store_results_of<T, kGateUp, kOrder, kSwiglu>(p, sum, tile, column, warpgroup, results, turn);
  if constexpr (kGateUp) {
    if (p.activation == kGeglu)
      return store_results_of<T, kGateUp, kOrder, kGeglu>(p, sum, tile, column, warpgroup, results, turn);
    store_results_of<T, kGateUp, kOrder, kClampedSwiglu>(p, sum, tile, column, warpgroup, results, turn);
  }
}

// Computes the matmul. Preconditions: n and k are multiples of 8. Without kGateUp, n is a multiple of 16. gridDim.x is
// a multiple of kHopperCluster.
template <class T, bool kGateUp>
__global__ void __launch_bounds__(kHopperThreads, 1) hopper(const __grid_constant__ HopperMatmul<T> p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char unaligned[];
  __shared__ SharedBarrier full[kHopperStages], empty[kHopperStages];
  constexpr int kColumns = kGateUp ? kHopperWeightRows / 2 : kHopperWeightRows;  // columns of y of one block
  unsigned char* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const HopperRing ring{shared_address(shared), full, empty};
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
  if (threadIdx.x == 0) {
    prepare(ring);
    prefetch_map(p.x);
    prefetch_map(p.w);
  }
  let_next_begin();
  sync_cluster();
  wait_for_previous();

  const int across = (p.n + kColumns * kHopperCluster - 1) / (kColumns * kHopperCluster);
  const int items = *p.order.num_tiles * across;
  const int stages = (p.k + kHopperDepth - 1) / kHopperDepth;
  if (warpgroup == kHopperWarpgroups) {
    keep_registers<24, false>();
    if (threadIdx.x % kWarpgroup == 0) {
      let_copies_see_stores();
      copy_tiles(p, ring, items, across, stages);
    }
    __syncwarp();
  } else {
    keep_registers<240, true>();
    const int rank = static_cast<int>(block_in_cluster());
    const int clusters = static_cast<int>(gridDim.x) / kHopperCluster;
    unsigned char* const results = shared + kHopperStages * kHopperStageBytes + warpgroup * 2 * kResultBytes<kGateUp>;
    RingPlace at;
    int turn = 0;
    for (int i = static_cast<int>(blockIdx.x) / kHopperCluster; i < items; i += clusters) {
      const Tile tile = p.order.tiles[i / across];
      float sum[kMostProductSums];
      multiply_tile_of<T>(sum, ring, at, stages, warpgroup, tile.rows);
      const int column = (i % across * kHopperCluster + rank) * kColumns + warpgroup * kResultColumns<kGateUp>;
      store_results<T, kGateUp>(p, sum, tile, column, warpgroup, results, turn);
    }
  }
  // A block must not end before this wait, because other blocks of the cluster may still write its shared memory and
  // signal its barriers.
  sync_cluster();
#endif
}

}  // namespace tessera::cuda::moe
