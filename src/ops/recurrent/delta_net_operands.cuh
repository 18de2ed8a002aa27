// What the chunked form of the gated delta net leaves in the workspace between its two kernels: of each chunk and value
// head the operands of the products with the state, scaled and in the order in which lanes take them.
//
// With G_i the sum of g up to row i of the chunk and u = U - W · S (gated_delta_net.h has the formulas of u):
//
//   W = (I + A)⁻¹ · (beta_i · exp(G_i) · k_i)      U = (I + A)⁻¹ · (beta_i · v_i)
//   A_ij = beta_i · exp(G_i - G_j) · (k_i·k_j) for j < i, else 0
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"
#include "tessera/ops/recurrent/delta_net.cuh"

namespace tessera::delta_net {

inline constexpr int kChunkThreads = 128;
inline constexpr int kChunkWarps = kChunkThreads / kWarp;
inline constexpr int kChunk = static_cast<int>(kDeltaChunk);
inline constexpr int kBlockRows = 16;  // of a tensor core's operand
inline constexpr int kBlocks = kChunk / kBlockRows;
inline constexpr int kDimTiles = kChunkDim / kBlockRows;
inline constexpr float kLog2E = 1.44269504088896f;

// Four pairs of 16-bit elements: what a lane has of a 16 x 16 tile.
using Fragment = uint4;
__device__ inline void spread(const Fragment& from, std::uint32_t (&to)[4]) {
  to[0] = from.x;
  to[1] = from.y;
  to[2] = from.z;
  to[3] = from.w;
}

// Of 16 rows and one value head. Each tile [kWarp] lies as a warp takes it: as the left operand of a product, or
// `values` as sums, whose pairs 0 and 1 are of the tile's first 8 columns.
struct BlockOperands {
  Fragment corrections[kDimTiles][kWarp];  // -W: tiles [rows, keys' dimensions]
  Fragment queries[kDimTiles][kWarp];      // exp(G_i) · q_i: tiles [rows, keys' dimensions]
  Fragment products[kBlocks][kWarp];  // exp(G_i - G_j) · (q_i·k_j): tiles [rows i, rows j], up to the block's own
  Fragment keys[kDimTiles][kWarp];    // exp(G_n - G_j) · k_j, transposed: tiles [keys' dimensions, rows]
  Fragment values[kDimTiles][kWarp];  // U: tiles [rows, values' dimensions]
};

__host__ __device__ constexpr int count_parts(int rows, int of) { return (rows + of - 1) / of; }

// Chunks of the requests before this one that take the chunked form. For whole warps.
template <class T>
__device__ inline int count_chunks_before(const DeltaNet<T>& p, int request) {
  int chunks = 0;
  for (int b = static_cast<int>(threadIdx.x) % kWarp; b < request; b += kWarp) {
    const int rows = state_request(p.metadata, b).num_rows;
    if (rows >= p.least_chunk_rows) chunks += count_parts(rows, kChunk);
  }
  return __reduce_add_sync(0xffffffffu, chunks);
}

// A chunk of a request.
struct ChunkPlace {
  int first_row;  // of the forward
  int count;      // rows, at most kChunk
  int block;      // number of its first block of 16 rows, in the workspace
};

// The chunk `in_window` of the window; false where there are fewer. For whole warps.
template <class T>
__device__ inline bool find_chunk(const DeltaNet<T>& p, int requests, int in_window, ChunkPlace& place) {
  if (in_window >= p.window_chunks) return false;
  int number = p.first_chunk + in_window;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int begin = 0; begin < requests; begin += kWarp) {
    int rows = begin + lane < requests ? state_request(p.metadata, begin + lane).num_rows : 0;
    if (rows < p.least_chunk_rows) rows = 0;
    int end = count_parts(rows, kChunk);  // chunks up to and with the lane's request
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const int before = __shfl_up_sync(0xffffffffu, end, step);
      if (lane >= step) end += before;
    }
    const unsigned beyond = __ballot_sync(0xffffffffu, number < end);
    if (beyond == 0) {
      number -= __shfl_sync(0xffffffffu, end, kWarp - 1);
      continue;
    }
    const int owner = __ffs(static_cast<int>(beyond)) - 1;
    const int chunk = number - __shfl_sync(0xffffffffu, end - count_parts(rows, kChunk), owner);
    const StateRequest request = state_request(p.metadata, begin + owner);
    place.first_row = request.first_row + chunk * kChunk;
    place.count = min(kChunk, request.num_rows - chunk * kChunk);
    place.block = in_window * kBlocks;
    return true;
  }
  return false;
}

}  // namespace tessera::delta_net
