// The second kernel of the chunked form of the gated delta net. A window is a range of chunks whose operands fit in the
// workspace. For each request, the kernel processes the request's chunks in the window one after the other. It updates
// the state with the operands that the first kernel made (delta_net_operands.cuh, which also explains the symbols
// below). Between two windows the state is in the request's slot.
//
// A block of four warps has kSliceColumns columns of one value head. The state of these columns stays in registers in
// float32: warp w has 32 of the key's dimensions. In each chunk, warp w computes the rows 16w … 16w + 15. Each lane
// prefetches its own fragments of the products' A operands to shared memory, and reads only these fragments. The warps
// synchronise only twice a chunk, to exchange the state and u.
//
//   u = U - W · S      out = (exp(G_i) · q_i) · S + (exp(G_i - G_j) · (q_i·k_j)) · u
//   S ← exp(G_n) · S + Σ_j (exp(G_n - G_j) · k_j) ⊗ u_j
#pragma once

#include "tessera/ops/recurrent/delta_net_operands.cuh"

namespace tessera::delta_net {

inline constexpr int kSliceTiles = kSliceColumns / 16;

// The indices of a lane's fragments (its parts of 16 x 16 tiles) in a stage of ChunkMemory.
inline constexpr int kCorrections = 0;
inline constexpr int kQueries = kCorrections + kDimTiles;
inline constexpr int kProducts = kQueries + kDimTiles;
inline constexpr int kKeys = kProducts + kBlocks;  // indexed [2, kBlocks]
inline constexpr int kValues = kKeys + 2 * kBlocks;
inline constexpr int kFragments = kValues + kSliceTiles;

// A block's shared memory. kStages is the number of chunks whose operands are in shared memory or on their way there.
// With one stage a block needs half the memory, but then the copies of a chunk overlap only with the work of other
// blocks.
template <class T, int kStages>
struct ChunkMemory {
  Fragment stages[kStages][kFragments][kChunkThreads];
  // Rows are padded by 16 bytes, so that eight rows at one column lie in different banks.
  T state[kChunkDim][kSliceColumns + 8];  // the state at the chunk's start
  T changes[kChunk][kSliceColumns + 8];   // u
};

template <class T, int kStages>
class Chunks {
 public:
  // Finds the chunks of `work` in the window. `before` is the number of the forward's chunks in earlier requests.
  __device__ Chunks(const DeltaNet<T>& p, const Work& work, int before, ChunkMemory<T, kStages>& memory)
      : p_(p),
        work_(work),
        m_(memory),
        of_request_(chunks_of(p, work.request)),
        skipped_(max(0, p.first_chunk - before)),
        chunks_(min(of_request_.count(), p.first_chunk + p.window_chunks - before) - skipped_),
        first_block_((before + skipped_ - p.first_chunk) * kBlocks) {}

  __device__ void run() {
    if (chunks_ <= 0) return;
#pragma unroll
    for (int chunk = 0; chunk < kStages; ++chunk) {
      fetch_for_state(chunk);
      fetch_for_changes(chunk);
    }
    float decay = decay_of(0);
    load_state();
    spread_state();
    __syncthreads();
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      const float next_decay = chunk + 1 < chunks_ ? decay_of(chunk + 1) : 0.0f;
      const Fragment(&own)[kFragments][kChunkThreads] = m_.stages[chunk % kStages];
      cuda::wait_for_copies<2 * kStages - 1>();
      multiply_state(own);
      __syncthreads();
      fetch_for_state(chunk + kStages);
      cuda::wait_for_copies<2 * kStages - 1>();
      multiply_changes(own, decay);
      decay = next_decay;
      spread_state();
      store_rows(skipped_ + chunk);
      if (skipped_ + chunk + 1 == of_request_.count_first()) store_state(work_.request.checkpoint_slot);
      __syncthreads();
      fetch_for_changes(chunk + kStages);
    }
    cuda::wait_for_copies<0>();
    store_state(work_.request.slot);
  }

 private:
  __device__ std::int64_t operands_at(int block) const {
    return static_cast<std::int64_t>(first_block_ + block) * p_.heads + work_.head;
  }
  __device__ float decay_of(int chunk) const { return p_.decays[operands_at(chunk * kBlocks)]; }
  __device__ bool is_column(int column) const { return work_.column + column < p_.value_dim; }

  __device__ int count_blocks(int chunk) const {
    return count_parts(of_request_.end(skipped_ + chunk) - of_request_.begin(skipped_ + chunk), kBlockRows);
  }
  // Copies one of the lane's fragments of a chunk. If `real` is false, it writes zeros instead.
  __device__ void copy(int chunk, int fragment, const Fragment (&from)[kWarp], bool real) {
    cuda::copy_async(&m_.stages[chunk % kStages][fragment][threadIdx.x], &from[lane_], real);
  }
  // Starts the copies of the fragments that multiply_state() reads.
  __device__ void fetch_for_state(int chunk) {
    if (chunk < chunks_) {
      const bool real = warp_ < count_blocks(chunk);
      const BlockOperands& own = p_.operands[operands_at(chunk * kBlocks + (real ? warp_ : 0))];
#pragma unroll
      for (int t = 0; t < kSliceTiles; ++t) copy(chunk, kValues + t, own.values[work_.column / 16 + t], real);
#pragma unroll
      for (int k = 0; k < kDimTiles; ++k) {
        copy(chunk, kCorrections + k, own.corrections[k], real);
        copy(chunk, kQueries + k, own.queries[k], real);
      }
    }
    cuda::commit_copies();
  }
  // Starts the copies of the fragments that multiply_changes() reads.
  __device__ void fetch_for_changes(int chunk) {
    if (chunk < chunks_) {
      const int blocks = count_blocks(chunk);
#pragma unroll
      for (int k = 0; k < kBlocks; ++k) {
        const bool real = k < blocks;
        const BlockOperands& block = p_.operands[operands_at(chunk * kBlocks + (real ? k : 0))];
#pragma unroll
        for (int m = 0; m < 2; ++m) copy(chunk, kKeys + m * kBlocks + k, block.keys[warp_ * 2 + m], real);
      }
      const bool real = warp_ < blocks;
      const BlockOperands& own = p_.operands[operands_at(chunk * kBlocks + (real ? warp_ : 0))];
#pragma unroll
      for (int k = 0; k < kBlocks; ++k)
        if (k <= warp_) copy(chunk, kProducts + k, own.products[k], real);
    }
    cuda::commit_copies();
  }

  // Calls f(first value, second value, key dimension, first column) for each pair of neighbouring columns in the lane's
  // part of the state.
  template <class F>
  __device__ void for_state(F&& f) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < kSliceColumns / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
          f(state_[m][n][i], state_[m][n][i + 1], warp_ * 32 + m * 16 + row_ + i * 4, n * 8 + column_);
  }
  __device__ float2* state_at(int slot, int key, int column) const {
    const std::int64_t head = static_cast<std::int64_t>(slot) * p_.heads + work_.head;
    return reinterpret_cast<float2*>(p_.state + (head * p_.key_dim + key) * p_.value_dim + work_.column + column);
  }
  __device__ void load_state() {
    const bool anew = work_.request.slot == 0 || (work_.request.anew && skipped_ == 0);
    for_state([&](float& first, float& second, int key, int column) {
      const bool kept = !anew && key < p_.key_dim && is_column(column);
      const float2 pair = kept ? *state_at(work_.request.slot, key, column) : float2{0.0f, 0.0f};
      first = pair.x;
      second = pair.y;
    });
  }
  __device__ void store_state(int slot) {
    if (slot == 0) return;
    for_state([&](float first, float second, int key, int column) {
      if (key < p_.key_dim && is_column(column)) *state_at(slot, key, column) = {first, second};
    });
  }
  __device__ void spread_state() {
    for_state([&](float first, float second, int key, int column) {
      *reinterpret_cast<std::uint32_t*>(&m_.state[key][column]) = cuda::pack_two<T>(first, second);
    });
  }

  // Computes u for the warp's rows and shares it with all warps. Also computes the products of the warp's queries with
  // the state.
  __device__ void multiply_state(const Fragment (&own)[kFragments][kChunkThreads]) {
    float changes[kSliceColumns / 8][4];
#pragma unroll
    for (int t = 0; t < kSliceTiles; ++t) {
      std::uint32_t value[4];
      spread(own[kValues + t][threadIdx.x], value);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = cuda::unpack_two<T>(value[i]);
        changes[2 * t + i / 2][i % 2 * 2] = pair.x;
        changes[2 * t + i / 2][i % 2 * 2 + 1] = pair.y;
        out_[2 * t + i / 2][i % 2 * 2] = 0.0f;
        out_[2 * t + i / 2][i % 2 * 2 + 1] = 0.0f;
      }
    }
#pragma unroll
    for (int k = 0; k < kDimTiles; ++k) {
      std::uint32_t correction[4];
      std::uint32_t query[4];
      spread(own[kCorrections + k][threadIdx.x], correction);
      spread(own[kQueries + k][threadIdx.x], query);
#pragma unroll
      for (int t = 0; t < kSliceTiles; ++t) {
        std::uint32_t b[4];
        cuda::load_matrices<true>(b, &m_.state[k * 16 + lane_ % 16][t * 16 + lane_ / 16 * 8]);
        cuda::multiply_tile<T>(changes[2 * t], correction, b[0], b[1]);
        cuda::multiply_tile<T>(changes[2 * t + 1], correction, b[2], b[3]);
        cuda::multiply_tile<T>(out_[2 * t], query, b[0], b[1]);
        cuda::multiply_tile<T>(out_[2 * t + 1], query, b[2], b[3]);
      }
    }
#pragma unroll
    for (int n = 0; n < kSliceColumns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        *reinterpret_cast<std::uint32_t*>(&m_.changes[warp_ * kBlockRows + row_ + i * 4][n * 8 + column_]) =
            cuda::pack_two<T>(changes[n][i], changes[n][i + 1]);
  }

  // Adds the contribution of u to the warp's rows of the output and to the warp's part of the state.
  __device__ void multiply_changes(const Fragment (&own)[kFragments][kChunkThreads], float decay) {
    for_state([&](float& first, float& second, int, int) {
      first *= decay;
      second *= decay;
    });
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      std::uint32_t b[kSliceTiles][4];
#pragma unroll
      for (int t = 0; t < kSliceTiles; ++t)
        cuda::load_matrices<true>(b[t], &m_.changes[k * 16 + lane_ % 16][t * 16 + lane_ / 16 * 8]);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        std::uint32_t key[4];
        spread(own[kKeys + m * kBlocks + k][threadIdx.x], key);
#pragma unroll
        for (int t = 0; t < kSliceTiles; ++t) {
          cuda::multiply_tile<T>(state_[m][2 * t], key, b[t][0], b[t][1]);
          cuda::multiply_tile<T>(state_[m][2 * t + 1], key, b[t][2], b[t][3]);
        }
      }
      if (k > warp_) continue;  // the tile (warp_, k) of products is above the diagonal, so it is zero
      std::uint32_t product[4];
      spread(own[kProducts + k][threadIdx.x], product);
#pragma unroll
      for (int t = 0; t < kSliceTiles; ++t) {
        cuda::multiply_tile<T>(out_[2 * t], product, b[t][0], b[t][1]);
        cuda::multiply_tile<T>(out_[2 * t + 1], product, b[t][2], b[t][3]);
      }
    }
  }

  __device__ void store_rows(int chunk) {
    const int begin = of_request_.begin(chunk);
    const int end = of_request_.end(chunk);
#pragma unroll
    for (int n = 0; n < kSliceColumns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int row = begin + warp_ * kBlockRows + row_ + i * 4;
        const int column = n * 8 + column_;
        if (row >= end || !is_column(column)) continue;
        T* const y = p_.y + static_cast<std::int64_t>(work_.request.first_row + row) * p_.heads * p_.value_dim;
        *reinterpret_cast<std::uint32_t*>(y + work_.head * p_.value_dim + work_.column + column) =
            cuda::pack_two<T>(out_[n][i], out_[n][i + 1]);
      }
  }

  const DeltaNet<T>& p_;
  const Work& work_;
  ChunkMemory<T, kStages>& m_;
  const RequestChunks of_request_;
  const int skipped_;      // the number of the request's chunks in earlier windows
  const int chunks_;       // the number of the request's chunks in this window
  const int first_block_;  // workspace index of the window's first block of 16 rows of the request
  const int warp_ = static_cast<int>(threadIdx.x) / kWarp;
  const int lane_ = static_cast<int>(threadIdx.x) % kWarp;
  const int row_ = lane_ / 4;  // row in a tile of sums; the lane has this row and row_ + 8
  const int column_ = lane_ % 4 * 2;
  float state_[2][kSliceColumns / 8][4];  // [m][n]: the warp's key dimensions from 16 m on, columns from 8 n on
  float out_[kSliceColumns / 8][4];       // output sums of the warp's rows
};

// Runs the chunks of a window. A block processes every gridDim.x-th work item. It skips requests for which
// chunked_rows() is 0, because run_rows() computes them.
template <class T, int kStages>
__global__ void __launch_bounds__(kChunkThreads) run_chunks(const DeltaNet<T> p) {
  extern __shared__ __align__(128) unsigned char shared[];
  auto& memory = *reinterpret_cast<ChunkMemory<T, kStages>*>(shared);
  let_next_begin();
  wait_for_previous();
  const int items = count_requests_on_device(p.metadata, p.num_rows) * p.heads * p.slices;
  for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
    const Work work = find_work(p, item);
    if (chunked_rows(p, work.request) == 0) continue;
    Chunks<T, kStages>(p, work, count_chunks_before(p, work.index), memory).run();
  }
}

}  // namespace tessera::delta_net
