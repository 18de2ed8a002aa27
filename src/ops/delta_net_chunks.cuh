// The chunked form of the gated delta net on tensor cores (gated_delta_net.h has the formulas).
//
// A block of four warps walks the chunks of one request, for one value head and kSliceColumns of its columns, whose
// part of the state stays in registers: transposed, each warp having 32 of the key's dimensions. In each chunk warp w
// has the rows 16w … 16w + 15. Products take operands of the storage type T and sum in float32; the triangular system
// is solved in float32, by blocks of 16 rows whose inverses the warps compute side by side.
#pragma once

#include <cstdint>

#include "tessera/ops/delta_net.cuh"
#include "tessera/ops/tensor_core.cuh"

namespace tessera::delta_net {

inline constexpr int kChunkThreads = 128;
inline constexpr int kChunkKeyDim = 128;  // keys of fewer dimensions are padded with zeros
inline constexpr int kChunk = static_cast<int>(kDeltaChunk);
inline constexpr int kBlockRows = 16;  // of the triangular system
inline constexpr int kBlocks = kChunk / kBlockRows;

template <class T>
struct ChunkMemory {
  // Rows are 16 bytes longer than their content, so that the lanes of a fragment's loads meet different banks.
  T keys[kChunk][kChunkKeyDim + 8];
  T queries[kChunk][kChunkKeyDim + 8];
  T state[kSliceColumns][kChunkKeyDim + 8];            // at the chunk's begin, transposed
  T changes[kSliceColumns][kChunk + 8];                // u, transposed
  T left_changes[kSliceColumns][kChunk + 8];           // exp(G_n - G_j) · u_j, transposed
  float matrix[kChunk][kChunk + 4];                    // beta_i · exp(G_i - G_j) · (k_i·k_j) for j < i, else 0
  float inverse[kBlocks][kBlockRows][kBlockRows + 1];  // of the unit lower triangular blocks on its diagonal
  float solution[kChunk][kSliceColumns + 1];           // values, then right-hand sides, then u
  float sums[kChunk];                                  // G
  float betas[kChunk];
};

__device__ inline std::uint32_t pair_at(const void* at) { return *static_cast<const std::uint32_t*>(at); }

template <class T>
__device__ inline std::uint32_t pack_pair(float low, float high) {
  alignas(std::uint32_t) const T pair[2] = {from_float<T>(low), from_float<T>(high)};
  return reinterpret_cast<const std::uint32_t&>(pair);
}

// Where a lane's elements of a tile lie: rows `row` and row + 8, columns `column` and column + 1.
struct Lane {
  int row = static_cast<int>(threadIdx.x) % kWarp / 4;
  int column = static_cast<int>(threadIdx.x) % 4 * 2;
};

// The fragment of a[16, 16], rows of `stride` elements.
template <class T>
__device__ inline void load_a(std::uint32_t (&a)[4], const T* from, int stride, const Lane& lane) {
  const T* const at = from + lane.row * stride + lane.column;
  a[0] = pair_at(at);
  a[1] = pair_at(at + 8 * stride);
  a[2] = pair_at(at + 8);
  a[3] = pair_at(at + 8 * stride + 8);
}

// sum += a · b for b[16, 8] whose columns are the rows of `from`.
template <class T>
__device__ inline void multiply_by_rows(float (&sum)[4], const std::uint32_t (&a)[4], const T* from, int stride,
                                        const Lane& lane) {
  const T* const at = from + lane.row * stride + lane.column;
  multiply_tile<T>(sum, a, pair_at(at), pair_at(at + 8));
}

// sum += a · b for b[16, 8] that lies in memory as it is.
template <class T>
__device__ inline void multiply_by_columns(float (&sum)[4], const std::uint32_t (&a)[4], const T* from, int stride) {
  const T* const at = from + static_cast<int>(threadIdx.x) % 16 * stride;
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
  std::uint32_t b0 = 0;
  std::uint32_t b1 = 0;
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(b0), "=r"(b1)
               : "r"(address)
               : "memory");
  multiply_tile<T>(sum, a, b0, b1);
}

template <class T>
class Chunks {
 public:
  __device__ Chunks(const DeltaNet<T>& p, const Work& work, ChunkMemory<T>& memory)
      : p_(p), work_(work), m_(memory), warp_(static_cast<int>(threadIdx.x) / kWarp) {}

  __device__ void run() {
    load_state();
    for (int done = 0; done < work_.request.num_rows; done += kChunk) {
      const int count = min(kChunk, work_.request.num_rows - done);
      first_row_ = work_.request.first_row + done;
      __syncthreads();  // the chunk before is read to its end
      load_rows(count);
      load_chunk_gates(count);
      spread_state();
      __syncthreads();
      multiply_rows();
      __syncthreads();
      invert_block();
      __syncthreads();
      solve();
      store_rows(count);
      update_state();
    }
    store_state();
  }

 private:
  // The key's dimensions of this warp's tile n of the state, first of 8.
  __device__ int key_tile(int n) const { return warp_ * 32 + n * 8; }
  __device__ float* state_at(int key, int column) const {
    const std::int64_t head = static_cast<std::int64_t>(work_.request.slot) * p_.heads + work_.head;
    return p_.state + (head * p_.key_dim + key) * p_.value_dim + work_.column + column;
  }
  __device__ bool is_column(int column) const { return work_.column + column < p_.value_dim; }

  // Calls f(value, key's dimension, column) for the lane's elements of the state.
  template <class F>
  __device__ void for_state(F&& f) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          f(state_[m][n][i], key_tile(n) + lane_.column + i % 2, m * 16 + lane_.row + i / 2 * 8);
  }

  __device__ void load_state() {
    for_state([&](float& value, int key, int column) {
      const bool kept = !work_.request.anew && key < p_.key_dim && is_column(column);
      value = kept ? *state_at(key, column) : 0.0f;
    });
  }
  __device__ void store_state() {
    if (work_.request.slot == 0) return;
    for_state([&](float& value, int key, int column) {
      if (key < p_.key_dim && is_column(column)) *state_at(key, column) = value;
    });
  }
  __device__ void spread_state() {
    for_state([&](float& value, int key, int column) { m_.state[column][key] = from_float<T>(value); });
  }

  // A row of queries or keys, of unit length times `scale`, by a warp.
  __device__ void load_unit(const T* from, bool real, float scale, T* to) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    constexpr int kOwn = kChunkKeyDim / kWarp;
    float values[kOwn];
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int i = j * kWarp + lane;
      values[j] = real && i < p_.key_dim ? to_float(from[i]) : 0.0f;
      squares += values[j] * values[j];
    }
    const float factor = scale * rsqrtf(warp_sum(squares) + kDeltaNormEps);
#pragma unroll
    for (int j = 0; j < kOwn; ++j) to[j * kWarp + lane] = from_float<T>(values[j] * factor);
  }

  // Rows past the chunk's end are zeros, with beta 0: they change nothing.
  __device__ void load_rows(int count) {
    const float query_scale = rsqrtf(static_cast<float>(p_.key_dim));
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 4
    for (int r = warp_ * kBlockRows; r < (warp_ + 1) * kBlockRows; ++r) {
      const std::int64_t row = first_row_ + min(r, count - 1);
      load_unit(p_.query(row, work_.head), r < count, query_scale, m_.queries[r]);
      load_unit(p_.key(row, work_.head), r < count, 1.0f, m_.keys[r]);
      const bool real = r < count && is_column(lane);
      m_.solution[r][lane] = real ? to_float(p_.value(row, work_.head)[work_.column + lane]) : 0.0f;
    }
  }

  // One warp: two rows a lane, and their running sum.
  __device__ void load_chunk_gates(int count) {
    if (warp_ != 0) return;
    const int lane = static_cast<int>(threadIdx.x);
    Gates gates[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = lane * 2 + i;
      gates[i] = r < count ? load_gates(p_, first_row_ + r, work_.head) : Gates{0.0f, 0.0f};
      m_.betas[r] = gates[i].beta;
    }
    const float own = gates[0].g + gates[1].g;
    float sum = own;
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const float before = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += before;
    }
    m_.sums[lane * 2] = sum - own + gates[0].g;
    m_.sums[lane * 2 + 1] = sum;
  }

  // The products of the warp's rows with keys and with the state.
  __device__ void multiply_rows() {
    const int first = warp_ * kBlockRows;
    constexpr int kStride = kChunkKeyDim + 8;
    float keys_keys[kChunk / 8][4] = {};
    float query_keys[kChunk / 8][4] = {};
    float keys_state[kSliceColumns / 8][4] = {};
#pragma unroll
    for (int n = 0; n < kSliceColumns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) out_[n][i] = 0.0f;
#pragma unroll
    for (int k = 0; k < kChunkKeyDim; k += 16) {
      std::uint32_t key[4];
      std::uint32_t query[4];
      load_a(key, &m_.keys[first][k], kStride, lane_);
      load_a(query, &m_.queries[first][k], kStride, lane_);
#pragma unroll
      for (int n = 0; n < kChunk / 8; ++n) {
        if (n * 8 >= first + kBlockRows) continue;  // above the diagonal
        multiply_by_rows(keys_keys[n], key, &m_.keys[n * 8][k], kStride, lane_);
        multiply_by_rows(query_keys[n], query, &m_.keys[n * 8][k], kStride, lane_);
      }
#pragma unroll
      for (int n = 0; n < kSliceColumns / 8; ++n) {
        multiply_by_rows(keys_state[n], key, &m_.state[n * 8][k], kStride, lane_);
        multiply_by_rows(out_[n], query, &m_.state[n * 8][k], kStride, lane_);
      }
    }

#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first + lane_.row + i / 2 * 8;
        const int column = n * 8 + lane_.column + i % 2;
        // No exponent above 0 is taken: it could overflow.
        const float decay = column <= row ? expf(m_.sums[row] - m_.sums[column]) : 0.0f;
        m_.matrix[row][column] = column < row ? m_.betas[row] * decay * keys_keys[n][i] : 0.0f;
        query_keys[n][i] = column <= row ? decay * query_keys[n][i] : 0.0f;
      }
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      decayed_[n][0] = pack_pair<T>(query_keys[n][0], query_keys[n][1]);
      decayed_[n][1] = pack_pair<T>(query_keys[n][2], query_keys[n][3]);
    }
#pragma unroll
    for (int n = 0; n < kSliceColumns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first + lane_.row + i / 2 * 8;
        const int column = n * 8 + lane_.column + i % 2;
        const float decay = expf(m_.sums[row]);
        out_[n][i] *= decay;
        float& value = m_.solution[row][column];
        value = m_.betas[row] * (value - decay * keys_state[n][i]);
      }
  }

  // Warp w inverts block w of the diagonal, a column to a lane: of the unit lower triangular I + N, by substitution.
  __device__ void invert_block() {
    const int column = static_cast<int>(threadIdx.x) % kWarp;
    if (column >= kBlockRows) return;
    const int first = warp_ * kBlockRows;
    float x[kBlockRows];
#pragma unroll
    for (int i = 0; i < kBlockRows; ++i) {
      float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
      for (int j = 0; j < i; ++j) sum = fmaf(-m_.matrix[first + i][first + j], x[j], sum);
      x[i] = sum;
      m_.inverse[warp_][i][column] = sum;
    }
  }

  // u = (I + matrix)⁻¹ · right-hand sides, block after block of rows. A thread has one column of four rows.
  __device__ void solve() {
    constexpr int kOwn = kBlockRows / (kChunkThreads / kSliceColumns);
    const int column = static_cast<int>(threadIdx.x) % kSliceColumns;
    const int own = warp_ * kOwn;
    const float last = m_.sums[kChunk - 1];
    for (int block = 0; block < kBlocks; ++block) {
      const int first = block * kBlockRows + own;
      float rest[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) rest[i] = m_.solution[first + i][column];
      for (int j = 0; j < block * kBlockRows; ++j) {
        const float u = m_.solution[j][column];
#pragma unroll
        for (int i = 0; i < kOwn; ++i) rest[i] = fmaf(-m_.matrix[first + i][j], u, rest[i]);
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) m_.solution[first + i][column] = rest[i];
      __syncthreads();
      float u[kOwn] = {};
      for (int j = 0; j < own + kOwn; ++j) {  // the inverse is lower triangular too
        const float value = m_.solution[block * kBlockRows + j][column];
#pragma unroll
        for (int i = 0; i < kOwn; ++i) u[i] = fmaf(m_.inverse[block][own + i][j], value, u[i]);
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        m_.solution[first + i][column] = u[i];
        m_.changes[column][first + i] = from_float<T>(u[i]);
        m_.left_changes[column][first + i] = from_float<T>(u[i] * expf(last - m_.sums[first + i]));
      }
      __syncthreads();
    }
  }

  // out += decayed query·key products times u, for the warp's rows.
  __device__ void store_rows(int count) {
    const int first = warp_ * kBlockRows;
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
      if (k > warp_) continue;  // above the diagonal
      const std::uint32_t a[4] = {decayed_[2 * k][0], decayed_[2 * k][1], decayed_[2 * k + 1][0],
                                  decayed_[2 * k + 1][1]};
#pragma unroll
      for (int n = 0; n < kSliceColumns / 8; ++n)
        multiply_by_rows(out_[n], a, &m_.changes[n * 8][k * 16], kChunk + 8, lane_);
    }
#pragma unroll
    for (int n = 0; n < kSliceColumns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first + lane_.row + i / 2 * 8;
        const int column = n * 8 + lane_.column + i % 2;
        if (row >= count || !is_column(column)) continue;
        T* const y = p_.y + static_cast<std::int64_t>(first_row_ + row) * p_.heads * p_.value_dim;
        y[work_.head * p_.value_dim + work_.column + column] = from_float<T>(out_[n][i]);
      }
  }

  // Sᵀ ← exp(G_n) · Sᵀ + Σ_j (exp(G_n - G_j) · u_j) ⊗ k_j
  __device__ void update_state() {
    const float decay = expf(m_.sums[kChunk - 1]);
    for_state([&](float& value, int, int) { value *= decay; });
#pragma unroll
    for (int k = 0; k < kChunk; k += 16)
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        std::uint32_t a[4];
        load_a(a, &m_.left_changes[m * 16][k], kChunk + 8, lane_);
#pragma unroll
        for (int n = 0; n < 4; ++n) multiply_by_columns(state_[m][n], a, &m_.keys[k][key_tile(n)], kChunkKeyDim + 8);
      }
  }

  const DeltaNet<T>& p_;
  const Work& work_;
  ChunkMemory<T>& m_;
  const int warp_;
  const Lane lane_ = {};
  int first_row_ = 0;
  float state_[2][4][4];                  // transposed: columns 16m …, the warp's dimensions 8n …
  float out_[kSliceColumns / 8][4];       // of the warp's rows
  std::uint32_t decayed_[kChunk / 8][2];  // exp(G_i - G_j) · (q_i·k_j), as operands of the next product
};

// A block takes every gridDim.x-th part. Requests of fewer rows are the recurrent kernel's.
template <class T>
__global__ void __launch_bounds__(kChunkThreads) run_chunks(const DeltaNet<T> p) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto& memory = *reinterpret_cast<ChunkMemory<T>*>(shared);
  let_next_begin();
  wait_for_previous();
  const int items = count_requests_on_device(p.metadata, p.num_rows) * p.heads * p.slices;
  for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
    const Work work = find_work(p, item);
    if (work.request.num_rows < p.least_chunk_rows) continue;
    Chunks<T>(p, work, memory).run();
    __syncthreads();
  }
}

}  // namespace tessera::delta_net
