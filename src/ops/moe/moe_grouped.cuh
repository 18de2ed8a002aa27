// Computes moe_experts' matmuls on tensor cores, for any number of tokens. Rows of x are sorted by expert and cut into
// tiles. A tile has rows of one expert only.
//
// The number of tiles depends on what the router chose. The grid always has as many blocks as the device runs at once,
// and each block takes every gridDim.x-th tile of the list that order_rows() made on the device (moe_order.cuh). So a
// recorded graph works for any choice, and a block without a tile ends. Tiles of one expert are neighbours in the list.
// So the expert's weights come from memory for the first of these tiles, and from the L2 cache for the others.
//
// A prefill is bounded by 6 · H · I operations for each pair (token, k), where H is the hidden size and I the
// intermediate size. mma.sync reaches about 600 of the H200's 989 dense TFLOP/s in bfloat16. Tiles of 128 rows, three
// stages of cp.async and two blocks per multiprocessor can be expected to reach about two thirds of these 600. If an
// expert has fewer rows than a tile, reading its weights limits the speed: computing takes longer than reading the
// weights only from about 120 rows on.
//
// Weights of 4 bits are loaded to registers while an earlier stage is multiplied, and then written to shared memory as
// bfloat16. From there they are multiplied like 16-bit weights.
//
// The sum of an element runs over k in steps of 16, in the same order in every tile. So the element's bits do not
// depend on other rows of the batch.
#pragma once

#include "tessera/ops/cuda/tensor_core.cuh"
#include "tessera/ops/moe/moe_mxfp4.cuh"

namespace tessera::cuda::moe {

inline constexpr int kDepth = 64;  // the columns of k in a stage, which are 128 bytes of each row
inline constexpr int kTileWeightRows = 128;
inline constexpr int kStages = 3;
inline constexpr int kChunks = kDepth / 8;              // 16-byte chunks in a row of a stage
inline constexpr int kRowsAtOnce = kThreads / kChunks;  // rows that all threads of a block copy together

template <int kRows>
inline constexpr int kStageBytes = (kRows + kTileWeightRows) * kDepth * 2;

// Returns the address of a chunk in a swizzled stage. Rows have 128 bytes. The number of a 16-byte chunk is XORed with
// the row's number, so that chunks with equal numbers in eight neighbouring rows lie in different banks.
__device__ inline unsigned chunk_at(unsigned base, int row, int chunk) {
  return base + static_cast<unsigned>(row * kDepth * 2 + ((chunk ^ (row & 7)) * 16));
}

// Copies 16 bytes asynchronously. If `wanted` is false, the function writes zeros instead.
__device__ inline void copy_chunk(unsigned to, const void* from, bool wanted) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(wanted ? 16 : 0) : "memory");
}
__device__ inline void end_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all but the last kStages - 2 stages have arrived.
__device__ inline void wait_for_stage() { asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory"); }

// Loads four 8 x 8 matrices. Lane l passes the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(std::uint32_t (&to)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// Copies the kRows rows of x of one tile, stage by stage. In each stage, a thread copies one chunk of every
// kRowsAtOnce-th row.
template <class T, int kRows, bool kGateUp>
class RowCopy {
 public:
  __device__ RowCopy(const Matmul<T>& p, const Order& order, const Tile& tile)
      : k_(p.k), chunk_(static_cast<int>(threadIdx.x) % kChunks), row_(static_cast<int>(threadIdx.x) / kChunks) {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const int r = row_ + i * kRowsAtOnce;
      const int at = tile.first + min(r, tile.rows - 1);
      x_[i] = p.x + static_cast<std::int64_t>(kGateUp ? order.row[at] : at) * p.k;
      has_x_[i] = r < tile.rows;
    }
  }

  __device__ void stage(unsigned to, int number) const {
    const int c = number * kDepth + chunk_ * 8;
    const bool inside = c < k_;
    const int from = inside ? c : 0;
#pragma unroll
    for (int i = 0; i < kMine; ++i)
      copy_chunk(chunk_at(to, row_ + i * kRowsAtOnce, chunk_), x_[i] + from, inside && has_x_[i]);
  }

 private:
  static constexpr int kMine = kRows / kRowsAtOnce;
  int k_;
  int chunk_;
  int row_;
  const T* x_[kMine];
  bool has_x_[kMine];
};

// kTileColumns is the number of columns of y in a tile, and `column` is the first of them. weight_row() takes the
// number r of a weight row in the tile, and returns the row's number among the weight rows of all experts.
template <bool kGateUp>
inline constexpr int kTileColumns = kGateUp ? kTileWeightRows / 2 : kTileWeightRows;
template <class T, bool kGateUp>
__device__ inline std::int64_t weight_row(const Matmul<T>& p, const Tile& tile, int column, int r) {
  const int c = min(column + r % kTileColumns<kGateUp>, p.n - 1);
  return static_cast<std::int64_t>(tile.expert) * p.w_rows + r / kTileColumns<kGateUp> * p.n + c;
}

// Copies the tile's kTileWeightRows weight rows. In a stage of shared memory, these rows follow the kRows rows of x.
// The kernel calls begin() for a stage, then multiplies an earlier stage, and then calls end().
template <class T, int kRows, bool kGateUp>
class PlainCopy {
 public:
  static constexpr bool kScalesSums = false;  // whether sums are multiplied with sum_factor()

  __device__ PlainCopy(const Matmul<T>& p, const Tile& tile, int column)
      : k_(p.k), chunk_(static_cast<int>(threadIdx.x) % kChunks), row_(static_cast<int>(threadIdx.x) / kChunks) {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const int r = row_ + i * kRowsAtOnce;
      w_[i] = p.w + weight_row<T, kGateUp>(p, tile, column, r) * p.k;
      has_w_[i] = column + r % kTileColumns<kGateUp> < p.n;
    }
  }

  __device__ void begin(unsigned to, int number) {
    const int c = number * kDepth + chunk_ * 8;
    const bool inside = c < k_;
    const int from = inside ? c : 0;
#pragma unroll
    for (int i = 0; i < kMine; ++i)
      copy_chunk(chunk_at(to, kRows + row_ + i * kRowsAtOnce, chunk_), w_[i] + from, inside && has_w_[i]);
  }
  __device__ void end(unsigned) {}

 private:
  static constexpr int kMine = kTileWeightRows / kRowsAtOnce;
  int k_;
  int chunk_;
  int row_;
  const T* w_[kMine];
  bool has_w_[kMine];
};

// Copies MXFP4 weights. A row has two blocks of 32 values in a stage; each thread copies one of them.
template <class T, int kRows, bool kGateUp>
class PackedCopy {
 public:
  static constexpr bool kScalesSums = false;

  __device__ PackedCopy(const Matmul<T>& p, const Tile& tile, int column)
      : blocks_(p.k / kPackedBlock),
        row_(static_cast<int>(threadIdx.x) / kOfRow),
        block_(static_cast<int>(threadIdx.x) % kOfRow),
        has_w_(column + row_ % kTileColumns<kGateUp> < p.n) {
    const std::int64_t at = weight_row<T, kGateUp>(p, tile, column, row_) * blocks_;
    packed_ = p.packed + at * (kPackedBlock / 2);
    scales_ = p.scales + at;
  }

  __device__ void begin(unsigned, int number) {
    const int block = number * kOfRow + block_;
    words_ = make_uint4(0, 0, 0, 0);
    scale_ = 0;
    if (block >= blocks_ || !has_w_) return;
    words_ = *reinterpret_cast<const uint4*>(packed_ + static_cast<std::int64_t>(block) * (kPackedBlock / 2));
    scale_ = scales_[block];
  }

  __device__ void end(unsigned to) {
    const std::uint32_t words[] = {words_.x, words_.y, words_.z, words_.w};
#pragma unroll
    for (int i = 0; i < kPackedBlock / 8; ++i) {
      std::uint32_t pairs[4];
      unpack_word(words[i], PackedFactor(scale_), pairs);
      asm volatile(
          "st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(chunk_at(to, kRows + row_, block_ * (kPackedBlock / 8) + i)),
          "r"(__byte_perm(pairs[0], pairs[1], 0x5410)), "r"(__byte_perm(pairs[2], pairs[3], 0x5410)),
          "r"(__byte_perm(pairs[0], pairs[1], 0x7632)), "r"(__byte_perm(pairs[2], pairs[3], 0x7632))
          : "memory");
    }
  }

 private:
  static constexpr int kOfRow = kDepth / kPackedBlock;
  static_assert(kTileWeightRows * kOfRow == kThreads);
  int blocks_;
  int row_;
  int block_;
  bool has_w_;
  unsigned scale_ = 0;
  uint4 words_ = {};
  const std::uint8_t* packed_;
  const std::uint8_t* scales_;
};

// Computes the matmul tile by tile. Eight warps multiply. They divide a tile's rows into two halves and its weight rows
// into four quarters, so that each warp has kRows / 2 rows and 32 weight rows. For gate and up, the 32 weight rows are
// the 16 rows of gate and the 16 rows of up for 16 columns of y, so that a thread has both sums of an element.
template <class T, int kRows, bool kGateUp, template <class, int, bool> class WeightCopy>
__global__ void __launch_bounds__(kThreads, 2) grouped(const Matmul<T> p, const Order order) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int kAcross = kTileColumns<kGateUp>;
  constexpr int kHigh = kRows / 32;  // groups of 16 rows of x for each warp
  let_next_begin();
  wait_for_previous();
  const auto base = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warp_row = warp / 4 * (kRows / 2);
  const int warp_column = warp % 4 * (kGateUp ? 16 : 32);
  const int second = kGateUp ? kAcross : 16;  // distance from the warp's first 16 weight rows to its second 16
  const int across = (p.n + kAcross - 1) / kAcross;
  const int stages = (p.k + kDepth - 1) / kDepth;
  const int tiles = *order.num_tiles * across;

  for (int t = static_cast<int>(blockIdx.x); t < tiles; t += static_cast<int>(gridDim.x)) {
    const Tile tile = order.tiles[t / across];
    const int column = t % across * kAcross;
    const RowCopy<T, kRows, kGateUp> rows(p, order, tile);
    WeightCopy<T, kRows, kGateUp> weights(p, tile, column);
    float sum[kHigh][4][4] = {};
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) {
      const unsigned to = base + s * kStageBytes<kRows>;
      if (s < stages) {
        rows.stage(to, s);
        weights.begin(to, s);
        weights.end(to);
      }
      end_stage();
    }
    for (int s = 0; s < stages; ++s) {
      wait_for_stage();
      __syncthreads();  // this stage is visible to all threads, and all threads have read the stage before it
      const int next = s + kStages - 1;
      const unsigned to = base + next % kStages * kStageBytes<kRows>;
      if (next < stages) {
        rows.stage(to, next);
        weights.begin(to, next);
      }
      end_stage();
      const unsigned x = base + s % kStages * kStageBytes<kRows>;
#pragma unroll
      for (int d = 0; d < kDepth / 16; ++d) {
        std::uint32_t a[kHigh][4];
        std::uint32_t b[2][4];
#pragma unroll
        for (int h = 0; h < kHigh; ++h)
          load_matrices(a[h], chunk_at(x, warp_row + h * 16 + lane % 16, d * 2 + lane / 16));
#pragma unroll
        for (int pair = 0; pair < 2; ++pair)
          load_matrices(b[pair], chunk_at(x, kRows + warp_column + pair * second + lane / 16 * 8 + lane % 8,
                                          d * 2 + lane / 8 % 2));
#pragma unroll
        for (int h = 0; h < kHigh; ++h)
#pragma unroll
          for (int e = 0; e < 4; ++e) multiply_tile<T>(sum[h][e], a[h], b[e / 2][e % 2 * 2], b[e / 2][e % 2 * 2 + 1]);
      }
      if (next < stages) weights.end(to);
    }
    __syncthreads();  // all reads end before the next tile's stages are written

    const std::int64_t stack_row = static_cast<std::int64_t>(tile.expert) * p.w_rows;
    const T* const bias = p.bias == nullptr ? nullptr : p.bias + stack_row;
    const auto scaled_sum = [&](float value, [[maybe_unused]] int weight_row) {
      using Copy = WeightCopy<T, kRows, kGateUp>;
      if constexpr (Copy::kScalesSums) value *= Copy::sum_factor(p, stack_row + weight_row);
      return value;
    };
    constexpr int kEights = kGateUp ? 2 : 4;  // groups of eight columns of y that a warp computes
#pragma unroll
    for (int h = 0; h < kHigh; ++h)
#pragma unroll
      for (int e = 0; e < kEights; ++e) {
        const int c = column + warp_column + e * 8 + lane % 4 * 2;
        if (c >= p.n) continue;  // c and n are even, so if c is below n, c + 1 is too
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = warp_row + h * 16 + half * 8 + lane / 4;
          if (row >= tile.rows) continue;
          Pack<T, 2> y;
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            float value = scaled_sum(sum[h][e][half * 2 + j], c + j);
            if (bias != nullptr) value += to_float(bias[c + j]);
            if constexpr (kGateUp) {
              float up = scaled_sum(sum[h][2 + e][half * 2 + j], p.n + c + j);
              if (bias != nullptr) up += to_float(bias[p.n + c + j]);
              value = activate<T>(value, up, p.activation, p.limit);
            }
            y.at[j] = from_float<T>(value);
          }
          store_pack(p.y + static_cast<std::int64_t>(tile.first + row) * p.n + c, y);
        }
      }
  }
}

}  // namespace tessera::cuda::moe
