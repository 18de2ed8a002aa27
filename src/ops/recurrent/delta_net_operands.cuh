// The workspace between the two kernels of the gated delta net's chunked form. For each chunk and value head, it holds
// the operands of the products with the state. These operands are scaled, and lie in the order in which lanes read
// them.
//
// G_i is the sum of g up to row i of the chunk, and n is the chunk's last row. gated_delta_net.h has the formulas of u.
// With I as the identity matrix, u = U - W · S, where:
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
inline constexpr int kBlockRows = 16;  // rows of a tensor core's operand
inline constexpr int kBlocks = kChunk / kBlockRows;
inline constexpr int kDimTiles = kChunkDim / kBlockRows;
inline constexpr float kLog2E = 1.44269504088896f;

// A lane's part of a 16 x 16 tile: four pairs of 16-bit elements.
using Fragment = uint4;
__device__ inline void spread(const Fragment& from, std::uint32_t (&to)[4]) {
  to[0] = from.x;
  to[1] = from.y;
  to[2] = from.z;
  to[3] = from.w;
}

// The operands of 16 rows and one value head. A tile is one Fragment for each lane of a warp. The tiles of `values`
// have the accumulator layout: pairs 0 and 1 of a lane's fragment belong to the tile's first 8 columns. All other tiles
// have the layout of mma's A operand.
struct BlockOperands {
  Fragment corrections[kDimTiles][kWarp];  // -W: tiles [rows, key dimensions]
  Fragment queries[kDimTiles][kWarp];      // exp(G_i) · q_i: tiles [rows, key dimensions]
  Fragment products[kBlocks][kWarp];  // exp(G_i - G_j) · (q_i·k_j): tiles [rows i, rows j], up to the block's own rows
  Fragment keys[kDimTiles][kWarp];    // exp(G_n - G_j) · k_j, transposed: tiles [key dimensions, rows]
  Fragment values[kDimTiles][kWarp];  // U: tiles [rows, value dimensions]
};

__host__ __device__ constexpr int count_parts(int rows, int of) { return (rows + of - 1) / of; }

// The chunks of a request of the chunked form. If the request has a checkpoint, a chunk ends there, so that the state
// after this chunk is the checkpoint.
struct RequestChunks {
  int num_rows = 0;    // 0: the request is not in the chunked form
  int first_rows = 0;  // number of rows before the checkpoint; 0 without one

  // Returns the number of chunks before the checkpoint.
  __device__ int count_first() const { return count_parts(first_rows, kChunk); }
  __device__ int count() const { return count_first() + count_parts(num_rows - first_rows, kChunk); }
  // Returns the chunk's first row in the request.
  __device__ int begin(int chunk) const {
    return chunk < count_first() ? chunk * kChunk : first_rows + (chunk - count_first()) * kChunk;
  }
  // Returns the row after the chunk's last one.
  __device__ int end(int chunk) const {
    return min(begin(chunk) + kChunk, chunk < count_first() ? first_rows : num_rows);
  }
};

template <class T>
__device__ inline RequestChunks chunks_of(const DeltaNet<T>& p, const StateRequest& request) {
  const int rows = chunked_rows(p, request);
  return {.num_rows = rows, .first_rows = rows > 0 ? request.checkpoint_rows : 0};
}

// Returns the number of chunks of the requests before `request`. Only requests in the chunked form have chunks. All
// lanes of a warp call this function.
template <class T>
__device__ inline int count_chunks_before(const DeltaNet<T>& p, int request) {
  int chunks = 0;
  for (int b = static_cast<int>(threadIdx.x) % kWarp; b < request; b += kWarp)
    chunks += chunks_of(p, state_request(p.metadata, b)).count();
  return __reduce_add_sync(0xffffffffu, chunks);
}

// The rows of one chunk of a request, and its operands in the workspace.
struct ChunkPlace {
  int first_row;  // the number of the chunk's first row in the forward
  int count;      // the number of rows, at most kChunk
  int block;      // the workspace index of the chunk's first block of 16 rows
};

// Sets `place` to chunk p.first_chunk + in_window of the forward. Returns false if in_window is past the end of the
// window, or if the forward has fewer chunks. All lanes of a warp call this function.
template <class T>
__device__ inline bool find_chunk(const DeltaNet<T>& p, int requests, int in_window, ChunkPlace& place) {
  if (in_window >= p.window_chunks) return false;
  int number = p.first_chunk + in_window;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int begin = 0; begin < requests; begin += kWarp) {
    const int own = begin + lane < requests ? chunks_of(p, state_request(p.metadata, begin + lane)).count() : 0;
    int end = own;  // the number of chunks up to and including the lane's request
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
    const int chunk = number - __shfl_sync(0xffffffffu, end - own, owner);
    const StateRequest request = state_request(p.metadata, begin + owner);
    const RequestChunks chunks = chunks_of(p, request);
    place.first_row = request.first_row + chunks.begin(chunk);
    place.count = chunks.end(chunk) - chunks.begin(chunk);
    place.block = in_window * kBlocks;
    return true;
  }
  return false;
}

}  // namespace tessera::delta_net
