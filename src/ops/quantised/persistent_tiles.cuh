// Computes quantised_linear of many rows on Hopper. A Product, as in quantised_block.cuh, says how a tile is
// multiplied. The blocks are persistent: each processes one tile after another. A multiprocessor has room for one
// block. If each tile had a block of its own, a multiprocessor would multiply nothing from the last product of one tile
// to the first product of the next. For tiles of 128 rows of w by 256 rows of x this pause is as long as the products
// of 800 to 1,000 columns of k (measured on an H200). Here the copies for the next tile run while a tile is stored.
//
// Two blocks of a cluster compute neighbouring tiles of w for the same rows of x, and share the copies of x. Results go
// from registers to memory through small buffers, which lie in shared memory beside the ring. A warpgroup has two
// buffers, so it writes one while the other is still read. The two warpgroups synchronise only at the ring.
#pragma once

#include "tessera/ops/quantised/quantised_block.cuh"

namespace tessera::cuda::quantised {

inline constexpr int kStoreBufferBytes = 16 * 36 * 4;  // bytes of a buffer, for 16 rows of 36 float32 numbers
inline constexpr int kStoreBytes = kTileWarpgroups * 2 * kStoreBufferBytes;

// Stores a warpgroup's results of a tile. `buffers` is the address of the warpgroup's two buffers. A pass stores the
// results of kRows rows of x.
template <class T, int kN, Gate kGate>
struct TileStore {
  static constexpr bool kGated = kGate != Gate::kNone;
  static constexpr int kColumns = kGated ? 32 : 64;  // columns of y that a warpgroup stores
  static constexpr int kRows = kGated ? 16 : 8;
  static constexpr int kRowBytes = (kColumns + 4) * 4;  // padded, so that the threads of a warp write to all banks
  static constexpr int kPacks = kColumns / 8;
  static constexpr int kStoring = kRows * kPacks;  // number of threads that store in a pass, half of the warpgroup
  static constexpr int kPasses = kN / kRows;
  static constexpr int kAhead = 4;
  static_assert(kRows * kRowBytes <= kStoreBufferBytes && 2 * kStoring == kWarpgroup);

  const TiledQuantised<T>& p;
  const TilePlace& at;
  std::uint32_t buffers;
  int warpgroup;

  __device__ void store(const float (&sum)[kN / 2], const float (&factor)[2], const int (&w_rows)[2]) const {
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
    const int column = at.first_weight / (kGated ? 2 : 1) + warpgroup * kColumns + thread % kPacks * 8;
    // Threads 0 to 63 store in even passes, the others in odd passes.
    const bool in_odd = thread >= kStoring;
    const int own = thread % kStoring / kPacks;
    const auto row_of = [&](int pass) { return at.first_row + pass * kRows + own; };
    const auto is_stored = [&](int pass) { return row_of(pass) < p.m && column < p.n; };
    const auto place_of = [&](int pass) { return static_cast<std::int64_t>(row_of(pass)) * p.n + column; };
    // Residuals are loaded some passes ahead, because a load takes longer than a pass.
    Pack<T, 8> residual[kAhead];
    const auto load_residual = [&](int i) {
      const int pass = 2 * i + (in_odd ? 1 : 0);
      if (i < kPasses / 2 && p.residual != nullptr && is_stored(pass))
        residual[i % kAhead] = load_pack<T, 8>(p.residual + place_of(pass));
    };
#pragma unroll
    for (int i = 0; i < kAhead; ++i) load_residual(i);
    float bias[2] = {};
    if (p.bias != nullptr) {
      bias[0] = to_float(p.bias[w_rows[0]]);
      bias[1] = to_float(p.bias[w_rows[1]]);
    }
    const int own_column = kGated ? thread / kWarp * 8 + thread % kWarp / 4 : thread / kWarp * 16 + thread % kWarp / 4;
    const std::uint32_t to = buffers + static_cast<std::uint32_t>(thread % 4 * 2 * kRowBytes + own_column * 4);
    const std::uint32_t from = buffers + static_cast<std::uint32_t>(own * kRowBytes + thread % kPacks * 32);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const std::uint32_t buffer = static_cast<std::uint32_t>(pass % 2 * kStoreBufferBytes);
#pragma unroll
      for (int i = 0; i < kRows / 8; ++i) {
        const int j = pass * (kRows / 8) + i;
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          const std::uint32_t row = to + buffer + static_cast<std::uint32_t>((i * 8 + odd) * kRowBytes);
          float first = __fmul_rn(sum[4 * j + odd], factor[0]);
          float second = __fmul_rn(sum[4 * j + 2 + odd], factor[1]);
          if (p.bias != nullptr) first += bias[0], second += bias[1];
          if constexpr (kGated) {
            store_shared(row, gated<T>(kGate, first, second));
          } else {
            store_shared(row, first);
            store_shared(row + 32, second);
          }
        }
      }
      sync_warpgroup();
      if (in_odd == (pass % 2 == 1) && is_stored(pass)) {
        float total[8];
        split_linear::add_blocks<1>(total, from + buffer);
        if (p.residual != nullptr) split_linear::add_pack<T>(total, residual[pass / 2 % kAhead]);
        store_pack(p.y + place_of(pass), pack_of<T>(total));
      }
      if (pass % 2 == 1) load_residual(pass / 2 + kAhead);
    }
    // The next tile's first pass overwrites the first buffer. The number of passes is even, so the threads read this
    // buffer for the last time in this tile's second-to-last pass.
    static_assert(kPasses % 2 == 0);
    sync_warpgroup();
  }

 private:
  __device__ static void store_shared(std::uint32_t to, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
  }
  __device__ void sync_warpgroup() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + warpgroup), "n"(kWarpgroup) : "memory");
  }
};

// Computes the first `pairs` pairs of tiles. The tiles of a pair have neighbouring rows of w and the same rows of x.
// The grid consists of clusters of two blocks. Preconditions: those of quantised_block(), and p.shared is true. Dynamic
// shared memory holds the ring, then kStoreBytes bytes for the buffers.
template <class Product>
__global__ void __launch_bounds__(kTileThreads<Product>, 1)
    persistent_tiles(const __grid_constant__ TiledQuantised<typename Product::Element> p, const int pairs) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using T = typename Product::Element;
  using Ring = typename Product::Ring;
  constexpr int kN = Ring::kN;
  static_assert(!Product::kRounds && Product::Ring::kStageScaleBytes == 0 && !Product::kLimitsBoxes &&
                !Product::kHoldsParts && kMovesRegisters<Product>);
  extern __shared__ unsigned char unaligned[];
  __shared__ SharedBarrier full[kMostTileStages], empty[kMostTileStages];
  const Ring ring{(shared_address(unaligned) + 1023) / 1024 * 1024, p.stages, full, full, empty};
  const int clusters = static_cast<int>(gridDim.x) / 2;
  const int stages = (p.k + Product::kColumns - 1) / Product::kColumns;
  TilePlace at{.rank = static_cast<int>(blockIdx.x) % 2, .splits = false, .first = 0, .count = stages};
  if (threadIdx.x == 0) {
    prefetch_map(p.values);
    prefetch_map(p.x);
    for (int s = 0; s < p.stages; ++s) {
      full[s].init(2);
      empty[s].init(kTileWarps * 2);
    }
    SharedBarrier::make_visible();
  }
  let_next_begin();
  sync_cluster();
  wait_for_previous();

  const auto warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
  RingPlace place;
  if (warpgroup == kTileWarpgroups) {
    keep_registers<40, false>();
    if (threadIdx.x % kWarpgroup == 0) {
      let_copies_see_stores();
      for (int pair = static_cast<int>(blockIdx.x) / 2; pair < pairs; pair += clusters) {
        at.take_tile<kN>(pair, p.row_tiles, /*shared=*/true);
        const TileCopies<T, Product> copies{p, at, ring};
        for (int s = 0; s < stages; ++s, place.advance(p.stages)) {
          if (place.turn > 0) empty[place.slot].wait((place.turn - 1) & 1);
          copies.weights(place.slot, s);
          copies.rows(place.slot, s);
        }
      }
    }
    __syncwarp();
  } else {
    keep_registers<232, true>();
    const int weight = Product::first_weight();
    const std::uint32_t buffers =
        ring.weights(p.stages) + static_cast<std::uint32_t>(warpgroup * 2 * kStoreBufferBytes);
    for (int pair = static_cast<int>(blockIdx.x) / 2; pair < pairs; pair += clusters) {
      at.take_tile<kN>(pair, p.row_tiles, /*shared=*/true);
      int w_rows[2];
      rows_of_thread(p, at, weight, w_rows);
      float sum[kN / 2];
      float factor[2];
      Product::multiply(p, at, ring, weight, w_rows, place, sum, factor);
      // The gate is chosen here and not in each pass, because a pass with code for all gates would not fit in the
      // instruction cache.
      const auto store = [&]<Gate kGate>() {
        TileStore<T, kN, kGate>{p, at, buffers, warpgroup}.store(sum, factor, w_rows);
      };
      switch (p.gate) {
        case Gate::kNone: store.template operator()<Gate::kNone>(); break;
        case Gate::kSilu: store.template operator()<Gate::kSilu>(); break;
        case Gate::kGeluTanh: store.template operator()<Gate::kGeluTanh>(); break;
        case Gate::kGeluErf: store.template operator()<Gate::kGeluErf>(); break;
      }
    }
  }
  // A block must not end before this wait, because the other block may still write this block's shared memory and
  // signal this block's barriers.
  sync_cluster();
#endif
}

}  // namespace tessera::cuda::quantised
