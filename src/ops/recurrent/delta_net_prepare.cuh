// The first kernel of the gated delta net's chunked form. It computes everything that does not need the state, for all
// chunks of a window in parallel (delta_net_operands.cuh has the formulas).
//
// A block of four warps has one chunk of one value head. Warp w has the rows 16w … 16w + 15 of the products k_i·k_j and
// q_i·k_j. It also has the 16 x 16 block of these rows on the diagonal of I + A, and inverts this block in float32.
// Then it solves the triangular system, one block of 16 rows after the other, for 32 of the key dimensions and 32 of
// the value dimensions, without synchronising with the other warps. The right-hand sides are transposed, so that the
// accumulators of one product can be an operand of the next product without leaving the registers.
#pragma once

#include "tessera/ops/recurrent/delta_net_operands.cuh"

namespace tessera::delta_net {

inline constexpr int kPack = 8;  // elements in 16 bytes
inline constexpr int kPacks = kChunkDim / kPack;

// Rows of 16-byte packs. The packs are swizzled by the row's number, so that reading eight rows at one column causes no
// bank conflict.
template <class T, int kRows>
struct Tile {
  cuda::Pack<T, kPack> at[kRows * kPacks];
  __device__ cuda::Pack<T, kPack>* pack(int row, int column) { return at + row * kPacks + (column ^ (row & 7)); }
};

template <class T>
struct PrepareMemory {
  // The rows of the triangular system that one warp computes. Later all warps read these rows.
  struct System {
    T matrix[kBlockRows][kChunk + kPack];  // the part of -A before the diagonal block, and the diagonal block's inverse
    float block[kBlockRows][kBlockRows + 4];  // the diagonal block of -A, transposed
  };
  union Own {
    Tile<T, kBlockRows> queries;
    System system;
  };

  Tile<T, kChunk> keys;
  Tile<T, kChunk> values;
  Own own[kBlocks];
  float sums[kChunk];  // G / ln 2
  float betas[kChunk];
  float key_factors[kChunk];  // 1 / |k|
  float left[kChunk];         // exp(G_n - G_j) / |k_j|
  float right[kChunk];        // -beta_j · exp(G_j) / |k_j|
};

template <class T>
class Preparation {
 public:
  __device__ Preparation(const DeltaNet<T>& p, const ChunkPlace& place, int head, PrepareMemory<T>& memory)
      : p_(p), place_(place), head_(head), m_(memory), blocks_(count_parts(place.count, kBlockRows)) {}

  __device__ void run() {
    load_rows();
    load_chunk_gates();
    cuda::wait_for_copies<0>();
    __syncthreads();
    multiply_rows();
    __syncthreads();
    store_queries();
    scale_products();
    invert_block();
    __syncthreads();
    solve<true>(m_.keys, m_.right);
    solve<false>(m_.values, m_.betas);
  }

 private:
  __device__ BlockOperands& operands(int block) const {
    return p_.operands[static_cast<std::int64_t>(place_.block + block) * p_.heads + head_];
  }
  // Returns the row of the lane's element i in an accumulator tile. The lane's elements lie in the warp's rows row_ and
  // row_ + 8, and columns column_ and column_ + 1.
  __device__ int own_row(int i) const { return warp_ * kBlockRows + row_ + i / 2 * 8; }

  // Loads the chunk's rows. Rows past the last one are zeros with beta 0 and g 0, so they change nothing.
  __device__ void load_rows() {
    const int pack = static_cast<int>(threadIdx.x) % kPacks;
    const bool in_key = pack * kPack < p_.key_dim;
    const bool in_value = pack * kPack < p_.value_dim;
#pragma unroll
    for (int i = 0; i < kChunk * kPacks / kChunkThreads; ++i) {
      const int r = i * (kChunkThreads / kPacks) + static_cast<int>(threadIdx.x) / kPacks;
      const bool real = r < place_.count;
      const DeltaRow<T> row = p_.row(place_.first_row + (real ? r : 0));
      const int key_at = p_.key_offset(head_) + (in_key ? pack * kPack : 0);
      const int value_at = head_ * p_.value_dim + (in_value ? pack * kPack : 0);
      cuda::copy_async(m_.keys.pack(r, pack), row.keys + key_at, real && in_key);
      cuda::copy_async(m_.own[r / kBlockRows].queries.pack(r % kBlockRows, pack), row.queries + key_at, real && in_key);
      cuda::copy_async(m_.values.pack(r, pack), row.values + value_at, real && in_value);
    }
    cuda::commit_copies();
  }

  // Loads the gates and computes their running sum. Only one warp does this, and each of its lanes has two rows.
  __device__ void load_chunk_gates() {
    if (warp_ != 0) return;
    Gates gates[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = lane_ * 2 + i;
      gates[i] = r < place_.count ? load_gates(p_, p_.row(place_.first_row + r).ba, head_) : Gates{0.0f, 0.0f};
      m_.betas[r] = gates[i].beta;
    }
    const float own = gates[0].g + gates[1].g;
    float sum = own;
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const float before = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane_ >= step) sum += before;
    }
    m_.sums[lane_ * 2] = (sum - own + gates[0].g) * kLog2E;
    m_.sums[lane_ * 2 + 1] = sum * kLog2E;
    if (lane_ == kWarp - 1) p_.decays[static_cast<std::int64_t>(place_.block) * p_.heads + head_] = exp2f(sum * kLog2E);
  }

  // Loads a 16 x 16 block of `tile` [rows, dimensions] as the A operand of a product: 16 rows from first_row on, and
  // their dimensions 16 · k … 16 · k + 15.
  template <int kRows>
  __device__ void load_left(std::uint32_t (&a)[4], Tile<T, kRows>& tile, int first_row, int k) const {
    cuda::load_matrices<false>(a, tile.pack(first_row + lane_ % 16, 2 * k + lane_ / 16));
  }
  // Adds the squares of the lane's elements in row row_ to squares[0], and of those in row row_ + 8 to squares[1].
  __device__ static void add_squares(float (&squares)[2], const std::uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = cuda::unpack_two<T>(a[i]);
      squares[i % 2] = fmaf(pair.x, pair.x, fmaf(pair.y, pair.y, squares[i % 2]));
    }
  }

  // Computes the products k_i·k_j and q_i·k_j for the warp's rows i, with keys and queries that are not yet scaled.
  // Also computes the factors that scale each row to unit length.
  __device__ void multiply_rows() {
    float key_squares[2] = {};
    float query_squares[2] = {};
#pragma unroll
    for (int k = 0; k < kDimTiles; ++k) {
      std::uint32_t key[4];
      std::uint32_t query[4];
      load_left(key, m_.keys, warp_ * kBlockRows, k);
      load_left(query, m_.own[warp_].queries, 0, k);
      add_squares(key_squares, key);
      add_squares(query_squares, query);
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        if (n > warp_) continue;  // the tile is above the diagonal
        std::uint32_t b[4];
        cuda::load_matrices<false>(b, m_.keys.pack(n * 16 + lane_ / 16 * 8 + lane_ % 8, 2 * k + lane_ / 8 % 2));
        cuda::multiply_tile<T>(key_keys_[2 * n], key, b[0], b[1]);
        cuda::multiply_tile<T>(key_keys_[2 * n + 1], key, b[2], b[3]);
        cuda::multiply_tile<T>(query_keys_[2 * n], query, b[0], b[1]);
        cuda::multiply_tile<T>(query_keys_[2 * n + 1], query, b[2], b[3]);
      }
    }
    const float query_scale = rsqrtf(static_cast<float>(p_.key_dim));
    const float last = m_.sums[kChunk - 1];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = own_row(2 * i);
      query_factors_[i] = query_scale * rsqrtf(warp_sum(query_squares[i], 4) + kDeltaNormEps);
      const float factor = rsqrtf(warp_sum(key_squares[i], 4) + kDeltaNormEps);
      if (lane_ % 4 != 0) continue;
      m_.key_factors[row] = factor;
      m_.left[row] = factor * exp2f(last - m_.sums[row]);
      m_.right[row] = -m_.betas[row] * factor * exp2f(m_.sums[row]);
    }
  }

  __device__ void store_queries() {
    float factors[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) factors[i] = query_factors_[i] * exp2f(m_.sums[own_row(2 * i)]);
#pragma unroll
    for (int k = 0; k < kDimTiles; ++k) {
      std::uint32_t a[4];
      load_left(a, m_.own[warp_].queries, 0, k);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = cuda::unpack_two<T>(a[i]);
        a[i] = cuda::pack_two<T>(pair.x * factors[i % 2], pair.y * factors[i % 2]);
      }
      if (warp_ < blocks_) operands(warp_).queries[k][lane_] = {a[0], a[1], a[2], a[3]};
    }
    __syncwarp();  // the warp has read all its queries, which the system overwrites
  }

  __device__ void scale_products() {
    auto& system = m_.own[warp_].system;
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (n / 2 > warp_) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = own_row(i);
        const int column = n * 8 + column_ + i % 2;
        // Only exponents up to 0 are evaluated, because greater ones could overflow.
        const float decay = column <= row ? exp2f(m_.sums[row] - m_.sums[column]) * m_.key_factors[column] : 0.0f;
        query_keys_[n][i] *= decay * query_factors_[i / 2];
        key_keys_[n][i] *= column < row ? -decay * m_.key_factors[row] * m_.betas[row] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int row = row_ + i * 4;
        const int column = n * 8 + column_;
        if (n / 2 < warp_) {
          *reinterpret_cast<std::uint32_t*>(&system.matrix[row][column]) =
              cuda::pack_two<T>(key_keys_[n][i], key_keys_[n][i + 1]);
        } else {
          system.block[column % kBlockRows][row] = key_keys_[n][i];
          system.block[column % kBlockRows + 1][row] = key_keys_[n][i + 1];
        }
      }
    }
    if (warp_ >= blocks_) return;
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      if (k > warp_) continue;
      operands(warp_).products[k][lane_] = {cuda::pack_two<T>(query_keys_[2 * k][0], query_keys_[2 * k][1]),
                                            cuda::pack_two<T>(query_keys_[2 * k][2], query_keys_[2 * k][3]),
                                            cuda::pack_two<T>(query_keys_[2 * k + 1][0], query_keys_[2 * k + 1][1]),
                                            cuda::pack_two<T>(query_keys_[2 * k + 1][2], query_keys_[2 * k + 1][3])};
    }
  }

  // Inverts the unit lower triangular block by substitution. Lanes l and l + 16 both compute column l of the inverse,
  // and each stores half of it.
  __device__ void invert_block() {
    auto& system = m_.own[warp_].system;
    __syncwarp();
    float x[kBlockRows];
#pragma unroll
    for (int i = 0; i < kBlockRows; ++i) x[i] = i == lane_ % kBlockRows ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < kBlockRows - 1; ++j)
#pragma unroll
      for (int i = (j + 1) / 4 * 4; i < kBlockRows; i += 4) {
        const float4 factors = *reinterpret_cast<const float4*>(&system.block[j][i]);
        if (i > j) x[i] = fmaf(factors.x, x[j], x[i]);
        if (i + 1 > j) x[i + 1] = fmaf(factors.y, x[j], x[i + 1]);
        if (i + 2 > j) x[i + 2] = fmaf(factors.z, x[j], x[i + 2]);
        x[i + 3] = fmaf(factors.w, x[j], x[i + 3]);
      }
#pragma unroll
    for (int i = 0; i < kBlockRows; ++i)
      if (i / 8 == lane_ / kBlockRows) system.matrix[i][warp_ * kBlockRows + lane_ % kBlockRows] = from_float<T>(x[i]);
  }

  // Loads the 16 x 16 block of -A in block row `block` and block column `before`, as B operands of products. If the two
  // numbers are equal, loads the inverse of the diagonal block instead.
  __device__ void load_system(std::uint32_t (&b)[4], int block, int before) const {
    cuda::load_matrices<false>(
        b, &m_.own[block].system.matrix[lane_ / 16 * 8 + lane_ % 8][before * kBlockRows + lane_ / 8 % 2 * 8]);
  }

  // Solves the system for the warp's two tiles of 16 columns. The right-hand side is `rows`, with each row j multiplied
  // by scales[j]. The solution is -W for keys, and U for values.
  template <bool kKeys>
  __device__ void solve(Tile<T, kChunk>& rows, const float (&scales)[kChunk]) {
    std::uint32_t solution[kBlocks][2][4];
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      if (block >= blocks_) break;
      float sums[2][2][4];  // transposed sums of 16 columns of a tile and two groups of 8 rows
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const int tile = warp_ * 2 + m;
        std::uint32_t raw[4];
        cuda::load_matrices<true>(raw,
                                  rows.pack(block * kBlockRows + lane_ / 16 * 8 + lane_ % 8, tile * 2 + lane_ / 8 % 2));
        std::uint32_t left[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = block * kBlockRows + i / 2 * 8 + column_;
          const float2 pair = cuda::unpack_two<T>(raw[i]);
          sums[m][i / 2][i % 2 * 2] = pair.x * scales[row];
          sums[m][i / 2][i % 2 * 2 + 1] = pair.y * scales[row + 1];
          if constexpr (kKeys) left[i] = cuda::pack_two<T>(pair.x * m_.left[row], pair.y * m_.left[row + 1]);
        }
        if constexpr (kKeys) operands(block).keys[tile][lane_] = {left[0], left[1], left[2], left[3]};
      }
      std::uint32_t b[4];
#pragma unroll
      for (int before = 0; before < block; ++before) {
        load_system(b, block, before);
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
          for (int n = 0; n < 2; ++n) cuda::multiply_tile<T>(sums[m][n], solution[before][m], b[2 * n], b[2 * n + 1]);
      }
      load_system(b, block, block);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        std::uint32_t a[4];
        float solved[2][4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = cuda::pack_two<T>(sums[m][i / 2][i % 2 * 2], sums[m][i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < 2; ++n) cuda::multiply_tile<T>(solved[n], a, b[2 * n], b[2 * n + 1]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          solution[block][m][i] = cuda::pack_two<T>(solved[i / 2][i % 2 * 2], solved[i / 2][i % 2 * 2 + 1]);
        const auto& turned = solution[block][m];
        Fragment* const to = kKeys ? operands(block).corrections[warp_ * 2 + m] : operands(block).values[warp_ * 2 + m];
        to[lane_] = {cuda::transpose_matrix(turned[0]), cuda::transpose_matrix(turned[2]),
                     cuda::transpose_matrix(turned[1]), cuda::transpose_matrix(turned[3])};
      }
    }
  }

  const DeltaNet<T>& p_;
  const ChunkPlace& place_;
  const int head_;
  PrepareMemory<T>& m_;
  const int blocks_;  // the number of blocks of the chunk that have rows
  const int warp_ = static_cast<int>(threadIdx.x) / kWarp;
  const int lane_ = static_cast<int>(threadIdx.x) % kWarp;
  const int row_ = lane_ / 4;
  const int column_ = lane_ % 4 * 2;
  float key_keys_[kChunk / 8][4] = {};
  float query_keys_[kChunk / 8][4] = {};
  float query_factors_[2] = {};  // factors of the rows row_ and row_ + 8
};

// Prepares the chunks of a window. A block processes every gridDim.x-th pair of a chunk and a value head.
template <class T>
__global__ void __launch_bounds__(kChunkThreads, 4) prepare_chunks(const DeltaNet<T> p) {
  extern __shared__ __align__(128) unsigned char shared[];
  auto& memory = *reinterpret_cast<PrepareMemory<T>*>(shared);
  let_next_begin();
  wait_for_previous();
  const int requests = count_requests_on_device(p.metadata, p.num_rows);
  ChunkPlace place;
  for (int item = static_cast<int>(blockIdx.x); find_chunk(p, requests, item / p.heads, place);
       item += static_cast<int>(gridDim.x)) {
    Preparation<T>(p, place, item % p.heads, memory).run();
    __syncthreads();
  }
}

}  // namespace tessera::delta_net
