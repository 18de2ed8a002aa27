// The warpgroups of a prefill attention block that compute (prefill_attention.cuh): each the results of kGroupRows
// query rows of one head.
//
// While a warpgroup turns scores into weights, its products of weights and values of the tile before run, and all
// products of the other warpgroup. They take turns in asking for products, so that one has scores to work on while the
// other waits for its own.
#pragma once

#include "tessera/ops/async_copy.cuh"
#include "tessera/ops/prefill_attention.cuh"

namespace tessera::cuda::prefill {

__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Barriers of the block by number, beside __syncthreads().
__device__ inline void wait_for_turn(int warpgroup) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + warpgroup), "n"(kWarpgroups * kWarpgroup) : "memory");
}
__device__ inline void give_turn(int warpgroup) {
  asm volatile("bar.arrive %0, %1;" ::"r"(1 + warpgroup), "n"(kWarpgroups * kWarpgroup) : "memory");
}
__device__ inline void sync_warpgroup(int warpgroup) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + kWarpgroups + warpgroup), "n"(kWarpgroup) : "memory");
}

// Rows are those of a product's sums (wgmma.cuh): a thread has parts of two, lane / 4 and lane / 4 + 8 of its
// warp's 16.
template <class T>
struct RowsWarpgroup {
  static constexpr int kOutSums = kHeadDim / 2;
  static constexpr int kScores = kKeys / 2;

  const Attention<T>& p;
  const Shared& shared;
  int warpgroup;
  int warp;  // of the warpgroup
  int lane = static_cast<int>(threadIdx.x) % kWarp;
  Place<kSlots> at = {};
  Place<kQuerySlots> query_at = {};

  float out[kOutSums];
  float scores[kScores];
  std::uint32_t weights[kScores / 2];
  float greatest[2];  // score of the row so far
  float sum[2];       // of the thread's weights
  float rescale[2];   // what sums before the newest tile are worth

  __device__ void run() {
    if (warpgroup == kWarpgroups - 1) give_turn(0);
    const int cluster = static_cast<int>(blockIdx.x) / kCluster;
    const int end = p.starts[cluster + 1];
#pragma unroll 1
    for (int i = p.starts[cluster]; i < end; ++i)
      if (const Work w = work_at(p, i, static_cast<int>(block_in_cluster())); w.tiles > 0) compute(w);
  }

  __device__ void compute(const Work& w) {
    const int position = w.position + warpgroup * kGroupRows;
    const std::uint32_t queries =
        shared.query(query_at.slot) + static_cast<std::uint32_t>(warpgroup * kGroupQueryBytes);
    shared.query_full[query_at.slot].wait(query_at.parity);
    greatest[0] = greatest[1] = -1e30F;  // finite, so that a row which sees no key of a tile stays without NaN
    sum[0] = sum[1] = 0;
#pragma unroll
    for (float& x : out) x = 0;

    int tile = w.tiles - 1;
    const int slot = take_tile();
    wait_for_turn(warpgroup);
    multiply_keys(queries, slot);
    give_turn(warpgroup ^ 1);
    wait_for_products<0>();
    hold(scores);
    release(slot);
    mask(tile, position);
    weigh();
    pack_weights();
    --tile;
    // Two loops: in the first are keys that some row does not see.
#pragma unroll 1
    for (; tile >= 0 && (tile + 1) * kKeys > position + 1; --tile) step<true>(queries, tile, position);
#pragma unroll 1
    for (; tile >= 0; --tile) step<false>(queries, tile, position);
    finish();
    store(w, queries);
    if (lane == 0) shared.query_empty[query_at.slot].arrive();
    query_at.advance();
  }

  // The scores of a tile, and the values of the one before, which came after it in the sequence.
  template <bool kMask>
  __device__ void step(std::uint32_t queries, int tile, int position) {
    const int keys = take_tile();
    wait_for_turn(warpgroup);
    multiply_keys(queries, keys);
    rescale_out();
    const int values = take_tile();
    add_values(values);
    give_turn(warpgroup ^ 1);
    wait_for_products<1>();
    hold(scores);
    release(keys);
    if constexpr (kMask) mask(tile, position);
    weigh();
    wait_for_products<0>();
    hold(out);
    release(values);
    pack_weights();
  }

  // The values of the first tile, and the rows' sums.
  __device__ void finish() {
    rescale_out();
    const int values = take_tile();
    add_values(values);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] += __shfl_xor_sync(~0U, sum[h], 1);
      sum[h] += __shfl_xor_sync(~0U, sum[h], 2);
      rescale[h] = 1 / sum[h];
    }
    wait_for_products<0>();
    hold(out);
    release(values);
  }

  // The slot of the next tile, when it has arrived.
  __device__ int take_tile() {
    const int slot = at.slot;
    shared.full[slot].wait(at.parity);
    at.advance();
    return slot;
  }
  __device__ void release(int slot) {
    if (lane != 0) return;
    for (unsigned block = 0; block < kCluster; ++block) arrive_at_block(shared.empty[slot], block);
  }

  __device__ void multiply_keys(std::uint32_t queries, int slot) {
    hold(scores);
    begin_products();
#pragma unroll
    for (int i = 0; i < kHeadDim / 16; ++i) {
      const int column = i * 16 / kColumns;
      multiply<T, kKeys>(
          scores,
          matrix_at(queries + static_cast<std::uint32_t>(column * kGroupRows * kRowBytes)) + i % 4 * kMatrixStep,
          matrix_at<kTokenGroupBytes>(shared.tile(slot) + static_cast<std::uint32_t>(column * kEightRowBytes)) +
              i % 4 * kMatrixStep,
          i);
    }
    end_products();
  }

  __device__ void add_values(int slot) {
    hold(out);
    hold(weights);
    begin_products();
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i)
      multiply_held<T, kHeadDim, /*kTransposed=*/true>(
          out, &weights[4 * i],
          wide_matrix_at<kTokenGroupBytes, kEightRowBytes>(shared.tile(slot) +
                                                           static_cast<std::uint32_t>(i * 2 * kTokenGroupBytes)),
          1);
    end_products();
  }

  // Scores of keys behind a row. `position`: of the warpgroup's first row.
  __device__ void mask(int tile, int position) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int last = position + warp * 16 + h * 8 + lane / 4 - tile * kKeys - lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < kScores / 4; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (j * 8 + i > last) scores[4 * j + 2 * h + i] = -INFINITY;
    }
  }

  // Scores become weights, relative to the greatest score so far.
  __device__ void weigh() {
    float shift[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float parts[4];  // four chains, so that one maximum need not wait for the last
#pragma unroll
      for (int j = 0; j < kScores / 4; ++j) {
        const float two = fmaxf(scores[4 * j + 2 * h], scores[4 * j + 2 * h + 1]);
        parts[j % 4] = j < 4 ? two : fmaxf(parts[j % 4], two);
      }
      float most = fmaxf(greatest[h], fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3])));
      most = fmaxf(most, __shfl_xor_sync(~0U, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0U, most, 2));
      rescale[h] = power_of_two((greatest[h] - most) * p.scale_log2);
      greatest[h] = most;
      shift[h] = -most * p.scale_log2;
      sum[h] *= rescale[h];
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int h = i / 2 % 2;
      scores[i] = power_of_two(fmaf(scores[i], p.scale_log2, shift[h]));
      sum[h] += scores[i];
    }
  }
  __device__ void pack_weights() {
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) weights[i] = pack_two<T>(scores[2 * i], scores[2 * i + 1]);
  }

  __device__ void rescale_out() {
    if (__all_sync(~0U, rescale[0] == 1 && rescale[1] == 1)) return;  // no row has a greater score than before
#pragma unroll
    for (int i = 0; i < kOutSums; ++i) out[i] *= rescale[i / 2 % 2];
  }

  // Through the queries' shared memory, where a row's 16-byte chunks change places by its number, to rows of 16 bytes a
  // thread.
  __device__ void store(const Work& w, std::uint32_t queries) {
    constexpr int kChunks = kHeadDim / 8;
    constexpr int kWarpRows = 16;
    const std::uint32_t mine = queries + static_cast<std::uint32_t>(warp * kWarpRows * kHeadDim * 2);
    const auto chunk_at = [&](int row, int chunk) {
      return mine + static_cast<std::uint32_t>((row * kChunks + (chunk ^ (row & 7))) * 16);
    };
    sync_warpgroup(warpgroup);  // the products of all its warps have ended
#pragma unroll
    for (int j = 0; j < kChunks / 2; ++j) {
      const float* const x = &out[8 * j];
      const std::uint32_t matrices[4] = {
          pack_two<T>(x[0] * rescale[0], x[1] * rescale[0]), pack_two<T>(x[2] * rescale[1], x[3] * rescale[1]),
          pack_two<T>(x[4] * rescale[0], x[5] * rescale[0]), pack_two<T>(x[6] * rescale[1], x[7] * rescale[1])};
      store_matrices(chunk_at(lane % 16, 2 * j + lane / 16), matrices);
    }
    __syncwarp();
    const int first = w.tile_begin + warpgroup * kGroupRows + warp * kWarpRows;
#pragma unroll
    for (int i = 0; i < kWarpRows * kChunks / kWarp; ++i) {
      const int row = (i * kWarp + lane) / kChunks;
      const int chunk = lane % kChunks;
      const uint4 values = load_chunk(chunk_at(row, chunk));
      if (first + row >= w.query_len) continue;
      T* const to = p.out + (static_cast<std::int64_t>(w.first_row + first + row) * p.heads + w.head) * kHeadDim;
      reinterpret_cast<uint4*>(to)[chunk] = values;
    }
    let_copies_follow();
    __syncwarp();
  }

  // Four 8 x 8 matrices to rows of shared memory: lane l gives the address of row l % 8 of matrix l / 8.
  __device__ static void store_matrices(std::uint32_t to, const std::uint32_t (&from)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]),
                 "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
  }
  __device__ static uint4 load_chunk(std::uint32_t from) {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(from)
                 : "memory");
    return x;
  }
  // Copies to shared memory that are asked for later come after what this thread stored there.
  __device__ static void let_copies_follow() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
};

}  // namespace tessera::cuda::prefill
