// Code that the recurrent and the chunked form of the gated delta net share on CUDA: the operands, and the assignment
// of work to blocks.
#pragma once

#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/recurrent/cuda_state.cuh"
#include "tessera/ops/recurrent/gated_delta_net.h"

namespace tessera::delta_net {

using namespace cuda;

struct BlockOperands;

// The operands of one row, which is either a row of the forward or a draft in a slot.
template <class T>
struct DeltaRow {
  const T* queries;  // [key_heads, key_dim]; null for a draft in a slot, which only advances the state
  const T* keys;     // [key_heads, key_dim]
  const T* values;   // [heads, value_dim]
  const T* ba;       // [2 · heads]
};

// Pointers to the parts of a draft in a slot. DraftLayout (gated_delta_net.h) describes the slot's layout.
template <class T>
struct DraftPlace {
  T* keys;
  T* values;
  T* ba;
};

template <class T>
struct DeltaNet {
  const T* qkv;          // [rows, 2 · key_heads · key_dim + heads · value_dim]
  const T* ba;           // [rows, 2 · heads]
  const float* a_log;    // [heads]
  const float* dt_bias;  // [heads]
  float* state;          // [slots, heads, key_dim, value_dim]
  T* draft_rows;         // [slots, DraftLayout]: keys, values and ba of drafts
  T* y;                  // [rows, heads · value_dim]
  std::int64_t num_rows;
  int key_heads;
  int heads;
  int key_dim;
  int value_dim;
  int held_drafts;
  int slices;            // the number of slices of value_dim; a slice has at most kSliceColumns columns
  int least_chunk_rows;  // requests with at least this number of rows use the chunked form; INT_MAX: no request does
  StateMetadata metadata;
  // The forward's chunks are numbered request after request. A window is a range of consecutive chunks. Two launches
  // process each window.
  int first_chunk;          // the number of the window's first chunk
  int window_chunks;        // the maximum number of chunks in a window
  BlockOperands* operands;  // workspace: [chunks of a window, blocks of 16 rows in a chunk, heads]
  float* decays;            // exp(G_n) (gated_delta_net.h) of each chunk, at the index of the chunk's first block

  __device__ std::int64_t width() const { return 2LL * key_heads * key_dim + 1LL * heads * value_dim; }
  __device__ int keys_width() const { return key_heads * key_dim; }
  __device__ DeltaRow<T> row(std::int64_t at) const {
    const T* const queries = qkv + at * width();
    return {queries, queries + keys_width(), queries + 2 * keys_width(), ba + at * 2 * heads};
  }
  // Returns the place of a draft. `number` is the draft's index in the slot, and `position` is its position in the
  // sequence.
  __device__ DraftPlace<T> draft(int slot, int number, int position) const {
    const DraftLayout layout{held_drafts, keys_width(), 2 * heads, heads * value_dim};
    T* const first = draft_rows + static_cast<std::int64_t>(slot) * layout.size();
    T* const keys = first + layout.keys_at(position);
    return {keys, first + layout.values_at(number), keys + layout.keys};
  }
  __device__ int key_offset(int head) const { return head / (heads / key_heads) * key_dim; }
};

inline constexpr int kChunkDim = 128;     // the chunked form pads keys and values with zeros to this many dimensions
inline constexpr int kSliceColumns = 32;  // columns of a head's values in a block: one for each lane of a warp

// The work of a block: neighbouring columns of one value head of one request.
struct Work {
  int index;  // index of the request
  StateRequest request;
  int head;
  int column;  // the first of the columns
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

// Returns the distance in elements from the request's state to its checkpoint. Reads the checkpoint's slot from the
// plan, because it would otherwise take a register.
template <class T>
__device__ inline std::int64_t checkpoint_distance(const DeltaNet<T>& p, const Work& work) {
  const int slot = p.metadata.checkpoint_slots[work.index];
  return static_cast<std::int64_t>(slot - work.request.slot) * p.heads * p.key_dim * p.value_dim;
}

// Returns the number of the request's rows that the chunked form computes: all rows, or 0. The recurrent form computes
// requests of few rows. It also computes requests with drafts, because it can store the state before the first draft.
// It computes requests with accepted drafts too, because the chunked form cannot read these drafts from the slot.
template <class T>
__device__ inline int chunked_rows(const DeltaNet<T>& p, const StateRequest& request) {
  const bool plain = request.kept_rows == request.num_rows && request.accepted == 0;
  return plain && request.num_rows >= p.least_chunk_rows ? request.num_rows : 0;
}

struct Gates {
  float g;
  float beta;
};
template <class T>
__device__ inline Gates load_gates(const DeltaNet<T>& p, const T* ba, int head) {
  const float a = to_float(ba[p.heads + head]) + p.dt_bias[head];
  const float softplus = a > static_cast<float>(kSoftplusLinear) ? a : log1pf(expf(a));
  return {-expf(p.a_log[head]) * softplus, 1.0f / (1.0f + expf(-to_float(ba[head])))};
}

}  // namespace tessera::delta_net
