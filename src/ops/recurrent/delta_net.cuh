// The part that both CUDA forms of the gated delta net share: the operands, and the assignment of work to blocks.
#pragma once

#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/recurrent/cuda_state.cuh"
#include "tessera/ops/recurrent/gated_delta_net.h"

namespace tessera::delta_net {

using namespace cuda;

struct BlockOperands;

template <class T>
struct DeltaNet {
  const T* qkv;          // [rows, 2 · key_heads · key_dim + heads · value_dim]
  const T* ba;           // [rows, 2 · heads]
  const float* a_log;    // [heads]
  const float* dt_bias;  // [heads]
  float* state;          // [slots, heads, key_dim, value_dim]
  T* y;                  // [rows, heads · value_dim]
  std::int64_t num_rows;
  int key_heads;
  int heads;
  int key_dim;
  int value_dim;
  int slices;            // slices of value_dim, each of at most kSliceColumns columns
  int least_chunk_rows;  // requests with at least this number of rows use the chunked form; INT_MAX: no request does
  StateMetadata metadata;
  // Chunks of the forward are processed in windows, request after request. Each window has two launches.
  int first_chunk;          // first chunk of the window
  int window_chunks;        // the greatest number of chunks in a window
  BlockOperands* operands;  // workspace: [chunks of a window, blocks of 16 rows in a chunk, heads]
  float* decays;            // like `operands`: exp(G_n), written for the first block of each chunk

  __device__ std::int64_t width() const { return 2LL * key_heads * key_dim + 1LL * heads * value_dim; }
  __device__ const T* query(std::int64_t row, int head) const {
    return qkv + row * width() + head / (heads / key_heads) * key_dim;
  }
  __device__ const T* key(std::int64_t row, int head) const { return query(row, head) + key_heads * key_dim; }
  __device__ const T* value(std::int64_t row, int head) const {
    return qkv + row * width() + 2 * key_heads * key_dim + head * value_dim;
  }
};

inline constexpr int kChunkDim = 128;     // the chunked form pads keys and values with zeros to this many dimensions
inline constexpr int kSliceColumns = 32;  // columns of a head's values in a block: one for each lane of a warp

// The work of a block: neighbouring columns of one value head of one request.
struct Work {
  int index;  // index of the request
  StateRequest request;
  int head;
  int column;  // first column
};

template <class T>
__device__ inline Work find_work(const DeltaNet<T>& p, int item) {
  Work work;
  work.column = item % p.slices * kSliceColumns;
  work.head = item / p.slices % p.heads;
  work.index = item / p.slices / p.heads;
  work.request = state_request(p.metadata, work.index);
  return work;
}

// Returns the number of the request's rows that the chunked form computes: all, or 0. The recurrent form computes
// requests of few rows. It also computes requests with drafts, because it can store the state before the first draft.
template <class T>
__device__ inline int chunked_rows(const DeltaNet<T>& p, const StateRequest& request) {
  return request.num_rows >= p.least_chunk_rows && request.kept_rows == request.num_rows ? request.num_rows : 0;
}

struct Gates {
  float g;
  float beta;
};
template <class T>
__device__ inline Gates load_gates(const DeltaNet<T>& p, std::int64_t row, int head) {
  const T* const ba = p.ba + row * 2 * p.heads;
  const float a = to_float(ba[p.heads + head]) + p.dt_bias[head];
  const float softplus = a > static_cast<float>(kSoftplusLinear) ? a : log1pf(expf(a));
  return {-expf(p.a_log[head]) * softplus, 1.0f / (1.0f + expf(-to_float(ba[head])))};
}

}  // namespace tessera::delta_net
