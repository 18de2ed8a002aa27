// Computes the recurrent form of the gated delta net on CUDA. A block computes the rows of a request one after the
// other, for some columns of one head. The kernel also advances states over accepted drafts, and stores new drafts.
//
// A block holds its part of the state in registers from the first row to the last, so it reads the state once.
// It writes the state once, and once more for a checkpoint. The operands of eight rows at a time are loaded and
// normalised before the first of them is computed. After that each row needs only one barrier, at which the warps
// exchange the sums Sᵀk.
#pragma once

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/recurrent/delta_net.cuh"

namespace tessera::delta_net {

inline constexpr int kRowWarps = 4;  // warps in a block, which divide the key's dimensions; each lane has one column
inline constexpr int kRowThreads = kRowWarps * kWarp;
inline constexpr int kRowsAtOnce = 8;  // rows whose operands a block holds

// The operands of a few rows of a head, in shared memory, and sums that the warps exchange.
template <int kHeld>
struct RowMemory {
  static constexpr int kDims = kHeld * kRowWarps;
  float queries[kRowsAtOnce][kDims];
  float keys[kRowsAtOnce][kDims];
  float values[kRowsAtOnce][kWarp];
  float decays[kRowsAtOnce];
  float betas[kRowsAtOnce];
  float found[2][kRowWarps][kWarp];
  float out[kRowsAtOnce][kRowWarps][kWarp];
};

// Adds up the partial sums of all warps for the lane's column.
__device__ inline float column_sum(const float (&parts)[kRowWarps][kWarp], int lane) {
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kRowWarps; ++w) sum += parts[w][lane];
  return sum;
}

// Loads the operands of `count` rows of a request for one head, beginning with row `first`, and normalises keys and
// queries. Row 0 is the request's first row in the forward. Rows with negative numbers are the accepted drafts in the
// slot, and row -1 is the last of them.
template <class T, int kHeld>
__device__ inline void load_rows(const DeltaNet<T>& p, const Work& work, int first, int count, RowMemory<kHeld>& to) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const StateRequest& request = work.request;
  const auto row_of = [&](int i) -> DeltaRow<T> {
    const int r = first + i;
    if (r >= 0) return p.row(request.first_row + r);
    const DraftPlace<T> draft = p.draft(request.slot, request.accepted + r, request.position + r);
    return {nullptr, draft.keys, draft.values, draft.ba};
  };
  // The last warp loads the gates, and the warp before it the values, so that neither load waits for the other.
  const int column = work.column + lane;
  if (warp == kRowWarps - 1 && lane < count) {
    const Gates gates = load_gates(p, row_of(lane).ba, work.head);
    to.decays[lane] = expf(gates.g);
    to.betas[lane] = gates.beta;
  }
  if (warp == kRowWarps - 2) {
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i)
      if (i < count)
        to.values[i][lane] = column < p.value_dim ? to_float(row_of(i).values[work.head * p.value_dim + column]) : 0.0f;
  }
  const int key_offset = p.key_offset(work.head);
  // The keys and queries of the rows are vectors, which are distributed over the warps. A warp loads all its vectors
  // before it uses the first one.
  constexpr int kVectors = 2 * kRowsAtOnce / kRowWarps;  // vectors that a warp loads
  constexpr int kLoads = RowMemory<kHeld>::kDims / kWarp;
  float values[kVectors][kLoads];
#pragma unroll
  for (int n = 0; n < kVectors; ++n) {
    const int v = n * kRowWarps + warp;
    if (v >= 2 * count) break;
    const DeltaRow<T> row = row_of(v / 2);
    const T* const from = v % 2 == 0 || row.queries == nullptr ? row.keys : row.queries;
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const int i = j * kWarp + lane;
      values[n][j] = i < p.key_dim ? to_float(from[key_offset + i]) : 0.0f;
    }
  }
#pragma unroll
  for (int n = 0; n < kVectors; ++n) {
    const int v = n * kRowWarps + warp;
    if (v >= 2 * count) break;
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kLoads; ++j) squares = fmaf(values[n][j], values[n][j], squares);
    const float length = sqrtf(warp_sum(squares) + kDeltaNormEps);
    const float factor = (v % 2 == 0 ? 1.0f : rsqrtf(static_cast<float>(p.key_dim))) / length;
    float* const vector = v % 2 == 0 ? to.keys[v / 2] : to.queries[v / 2];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) vector[j * kWarp + lane] = values[n][j] * factor;
  }
}

// Stores this block's part of the new drafts in the request's slot. Every block stores the values of its columns. A
// head's first block also stores the head's gates. The first block that uses a key head also stores this key head's
// keys. Other blocks may still read accepted drafts from the slot, but these lie in other places (gated_delta_net.h).
template <class T>
__device__ inline void keep_drafts(const DeltaNet<T>& p, const Work& work) {
  const StateRequest& request = work.request;
  if (request.slot == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column = work.column + lane;
  const bool has_gates = work.column == 0;
  const bool has_keys = has_gates && work.head % (p.heads / p.key_heads) == 0;
  for (int i = warp; i < request.num_rows - request.kept_rows; i += kRowWarps) {
    const int r = request.kept_rows + i;
    const DeltaRow<T> from = p.row(request.first_row + r);
    const DraftPlace<T> to = p.draft(request.slot, i, request.position + r);
    if (column < p.value_dim)
      to.values[work.head * p.value_dim + column] = from.values[work.head * p.value_dim + column];
    if (has_gates && lane < 2) to.ba[lane * p.heads + work.head] = from.ba[lane * p.heads + work.head];
    if (!has_keys) continue;
    const int first_key = p.key_offset(work.head);
    for (int j = lane; j < p.key_dim; j += kWarp) to.keys[first_key + j] = from.keys[first_key + j];
  }
}

// Computes requests row by row, and stores their drafts. A thread holds kHeld elements of one column of the state. The
// warps of a block divide the dimensions of the key. The launch bounds limit registers to what the state needs, so that
// more blocks fit on a multiprocessor. The blocks then hide one another's loads: for 64 requests on an H200, the kernel
// took 137 us with five blocks on a multiprocessor, and 124 us with seven.
template <class T, int kHeld>
__global__ void __launch_bounds__(kRowThreads, kHeld <= 32 ? 7 : 3) run_rows(const DeltaNet<T> p) {
  __shared__ alignas(16) RowMemory<kHeld> m;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  let_next_begin();
  const int items = count_requests_on_device(p.metadata, p.num_rows) * p.heads * p.slices;
  bool waited = false;
  for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
    const Work work = find_work(p, item);
    if (chunked_rows(p, work.request) > 0) continue;
    const int column = work.column + lane;
    const int first_key = warp * kHeld;
    const int keys = column < p.value_dim ? min(kHeld, p.key_dim - first_key) : 0;  // number of real elements
    float* const slot =
        p.state +
        ((static_cast<std::int64_t>(work.request.slot) * p.heads + work.head) * p.key_dim + first_key) * p.value_dim +
        column;
    // Earlier forwards wrote the state, so it may be read before the preceding kernel has ended.
    float state[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) state[i] = i < keys && !work.request.anew ? slot[i * p.value_dim] : 0.0f;
    if (!waited) wait_for_previous();
    waited = true;

    // Row 0 is the request's first row in the forward. Accepted drafts have negative numbers and no results.
    int count = 0;
    for (int first = -work.request.accepted; first < work.request.num_rows; first += count) {
      // The rows that are computed at once end at a checkpoint.
      const bool is_before = work.request.checkpoint_rows > max(first, 0);
      count = min(kRowsAtOnce, (is_before ? work.request.checkpoint_rows : work.request.num_rows) - first);
      __syncthreads();  // all threads have used the previous rows
      load_rows(p, work, first, count, m);
      __syncthreads();
      for (int i = 0; i < count; ++i) {
        const auto* const of_key = reinterpret_cast<const float4*>(&m.keys[i][first_key]);
        const auto* const of_query = reinterpret_cast<const float4*>(&m.queries[i][first_key]);
        float4 found{};
#pragma unroll
        for (int j = 0; j < kHeld / 4; ++j) {
          const float4 key = of_key[j];
          found.x = fmaf(key.x, state[4 * j], found.x);
          found.y = fmaf(key.y, state[4 * j + 1], found.y);
          found.z = fmaf(key.z, state[4 * j + 2], found.z);
          found.w = fmaf(key.w, state[4 * j + 3], found.w);
        }
        m.found[i % 2][warp][lane] = (found.x + found.y) + (found.z + found.w);
        __syncthreads();
        const float decay = m.decays[i];
        const float change = m.betas[i] * (m.values[i][lane] - decay * column_sum(m.found[i % 2], lane));
        float4 out{};
#pragma unroll
        for (int j = 0; j < kHeld / 4; ++j) {
          const float4 key = of_key[j];
          const float4 query = of_query[j];
          state[4 * j] = fmaf(decay, state[4 * j], key.x * change);
          state[4 * j + 1] = fmaf(decay, state[4 * j + 1], key.y * change);
          state[4 * j + 2] = fmaf(decay, state[4 * j + 2], key.z * change);
          state[4 * j + 3] = fmaf(decay, state[4 * j + 3], key.w * change);
          out.x = fmaf(query.x, state[4 * j], out.x);
          out.y = fmaf(query.y, state[4 * j + 1], out.y);
          out.z = fmaf(query.z, state[4 * j + 2], out.z);
          out.w = fmaf(query.w, state[4 * j + 3], out.w);
        }
        m.out[i][warp][lane] = (out.x + out.y) + (out.z + out.w);
        if (first + i + 1 != work.request.kept_rows || work.request.slot == 0) continue;
#pragma unroll
        for (int j = 0; j < kHeld; ++j)
          if (j < keys) slot[j * p.value_dim] = state[j];
      }
      __syncthreads();
      for (int i = warp; i < count; i += kRowWarps) {
        const std::int64_t row = work.request.first_row + first + i;
        if (first + i >= 0 && column < p.value_dim)
          p.y[(row * p.heads + work.head) * p.value_dim + column] = from_float<T>(column_sum(m.out[i], lane));
      }
      if (!is_before || first + count != work.request.checkpoint_rows) continue;
      float* const to = slot + checkpoint_distance(p, work);
#pragma unroll
      for (int j = 0; j < kHeld; ++j)
        if (j < keys) to[j * p.value_dim] = state[j];
    }
    // Calls find_work() again, because `work` would otherwise take registers during the loop above.
    keep_drafts(p, find_work(p, item));
  }
  if (!waited) wait_for_previous();
}

}  // namespace tessera::delta_net
