// The first step of moe_experts' tiled algorithms: sorts the pairs (token, k) by expert, makes the list of tiles, and
// lists or copies the rows of x in the order of the sorted pairs.
//
// Each block counts all pairs, and separately the pairs of the tokens that come before the block's own tokens. So the
// block knows where its own pairs go, and blocks need not wait for each other. A matmul that reads x by the copy engine
// (TMA) needs contiguous rows, so this step copies them for it. If rows are copied, copying bounds the time, because T
// · top_k rows are written, and read again by the matmul.
#pragma once

#include <algorithm>

#include "tessera/ops/moe/moe_mxfp4.cuh"
#include "tessera/ops/moe/moe_route.h"
#include "tessera/ops/moe/moe_scratch.cuh"

namespace tessera::cuda::moe {

inline constexpr int kOrderThreads = 1024;
static_assert(kMaxExperts <= kOrderThreads);

// Says what happens to the rows of x. kListed copies no rows, and stores each place's token in order.row. kCopied
// copies the rows as they are. kPaired and kAlternating copy the rows and permute their columns (ColumnOrder in
// moe_experts.cuh).
enum class RowsOfX { kListed, kCopied, kPaired, kAlternating };

// Arranges 16 columns of x so that the columns with even numbers come first.
__device__ inline void alternate(uint4 (&columns)[2]) {
  const uint4 low = columns[0];
  const uint4 high = columns[1];
  const auto arrange = [&](unsigned select) {
    return make_uint4(__byte_perm(low.x, low.y, select), __byte_perm(low.z, low.w, select),
                      __byte_perm(high.x, high.y, select), __byte_perm(high.z, high.w, select));
  };
  columns[0] = arrange(0x5410);
  columns[1] = arrange(0x7632);
}

// Sorts the pairs by expert. x is [tokens, packs] and `rows` is [pairs, packs], where a pack is 16 bytes. If some pairs
// have no expert, the last rows of `rows` are left unchanged. An expert's rows are split evenly, in multiples of
// row_step, into the smallest number of tiles of at most most_rows rows. Experts with larger tiles come first in the
// list, so that all blocks, which take every gridDim.x-th tile, have about the same amount of work. The order of one
// block's pairs within an expert depends on the order of atomics. This changes no bit of the result, because no sum
// runs over rows and the place of every pair is stored.
template <RowsOfX kRows>
static __global__ void __launch_bounds__(kOrderThreads)
    order_rows(const uint4* x, const std::int32_t* ids, int tokens, int top_k, int experts, int packs, int most_rows,
               int row_step, Order order, uint4* rows) {
  __shared__ int before[kMaxExperts];     // counts the pairs before the block's own; later the expert's next row
  __shared__ int after[kMaxExperts];      // counts the block's own pairs and the pairs after them
  __shared__ int2 tiles_of[kMaxExperts];  // for each expert, (rows of a tile, number of tiles)
  __shared__ int2 scratch[kOrderThreads / kWarp];
  constexpr int kAtOnce = 8;  // the number of loads in flight
  let_next_begin();
  wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x);
  const int blocks = static_cast<int>(gridDim.x);
  const int each = (tokens + blocks - 1) / blocks;
  const int begin = min(tokens, static_cast<int>(blockIdx.x) * each);
  const int end = min(tokens, begin + each);
  const int pairs = tokens * top_k;
  const auto is_expert = [&](int id) { return id >= 0 && id < experts; };
  if (thread < kMaxExperts) before[thread] = after[thread] = 0;
  __syncthreads();
  for (int base = thread; base < pairs; base += kAtOnce * kOrderThreads) {
    int id[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int pair = base + i * kOrderThreads;
      id[i] = pair < pairs ? ids[pair] : -1;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (is_expert(id[i])) atomicAdd(base + i * kOrderThreads < begin * top_k ? &before[id[i]] : &after[id[i]], 1);
  }
  __syncthreads();

  const int count = thread < experts ? before[thread] + after[thread] : 0;
  const int tiles = (count + most_rows - 1) / most_rows;
  const int2 sum = sum_before(make_int2(count, tiles), scratch);
  if (blockIdx.x == 0) {
    const int share = tiles == 0 ? 0 : (count + tiles - 1) / tiles;
    const int of_tile = (share + row_step - 1) / row_step * row_step;
    if (thread < experts) tiles_of[thread] = make_int2(of_tile, tiles);
    __syncthreads();
    int at = 0;
    for (int e = 0; e < experts && tiles > 0; ++e) {
      const int2 other = tiles_of[e];
      if (other.x > of_tile || (other.x == of_tile && e < thread)) at += other.y;
    }
    for (int i = 0; i < tiles; ++i)
      order.tiles[at + i] = {thread, sum.x + i * of_tile, min(of_tile, count - i * of_tile), 0};
    if (thread == kOrderThreads - 1) *order.num_tiles = sum.y + tiles;
  }
  if (thread < experts) before[thread] += sum.x;
  __syncthreads();

  for (int pair = begin * top_k + thread; pair < end * top_k; pair += kOrderThreads) {
    const int place = is_expert(ids[pair]) ? atomicAdd(&before[ids[pair]], 1) : -1;
    order.place[pair] = place;
    if (kRows == RowsOfX::kListed && place >= 0) order.row[place] = pair / top_k;
  }
  if constexpr (kRows != RowsOfX::kListed) {
    __syncthreads();  // the places are complete before other threads read them
    // Columns are permuted within groups of this many packs.
    constexpr int kPacks = kRows == RowsOfX::kPaired ? 4 : kRows == RowsOfX::kAlternating ? 2 : 1;
    const int across = packs / kPacks;
    const int items = (end - begin) * across;
    for (int i = thread; i < items; i += kOrderThreads) {
      const int token = begin + i / across;
      const int at = i % across * kPacks;
      uint4 values[kPacks];
#pragma unroll
      for (int j = 0; j < kPacks; ++j) values[j] = x[static_cast<std::int64_t>(token) * packs + at + j];
      if constexpr (kRows == RowsOfX::kPaired) pair_up(values);
      if constexpr (kRows == RowsOfX::kAlternating) alternate(values);
      for (int k = 0; k < top_k; ++k) {
        const int place = order.place[token * top_k + k];
        if (place < 0) continue;
#pragma unroll
        for (int j = 0; j < kPacks; ++j) rows[static_cast<std::int64_t>(place) * packs + at + j] = values[j];
      }
    }
  }
}

// Launches order_rows() for the tokens from `begin` on, at most kMostTokens of them.
template <RowsOfX kRows>
void launch_order(const ExpertsProblem& p, std::int64_t begin, int most_rows, int row_step, const Order& order,
                  std::byte* rows, cudaStream_t stream) {
  constexpr std::int64_t kCopyingBlocks = 128;  // about one per multiprocessor, because every block counts all pairs
  const std::int64_t tokens = std::min(kMostTokens, p.tokens - begin);
  const std::int64_t blocks =
      kRows == RowsOfX::kListed ? ceil_div(tokens * p.top_k, kOrderThreads) : std::min(tokens, kCopyingBlocks);
  const auto row_bytes = p.hidden * static_cast<std::int64_t>(ir::dtype_size(p.dtype));
  launch_early(order_rows<kRows>,
               LaunchShape{.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kOrderThreads)}, stream,
               reinterpret_cast<const uint4*>(p.x + begin * row_bytes), p.ids + begin * p.top_k,
               static_cast<int>(tokens), static_cast<int>(p.top_k), static_cast<int>(p.experts),
               static_cast<int>(row_bytes / 16), most_rows, row_step, order, reinterpret_cast<uint4*>(rows));
}

}  // namespace tessera::cuda::moe
