// The two kernels of latent attention's direct form, for the sizes that are published (DeepSeek-V2 and V3): a latent of
// 512 beside 64 rotated values, keys and values of 128 for each head. Both multiply on tensor cores from tiles in
// shared memory, whose copies run three steps ahead.
#pragma once

#include "tessera/ops/async_copy.cuh"
#include "tessera/ops/cuda_launch.cuh"
#include "tessera/ops/cuda_rotary.cuh"
#include "tessera/ops/latent_forms.cuh"
#include "tessera/ops/own_attention.cuh"
#include "tessera/ops/tensor_core.cuh"

namespace tessera::direct_form {

using cuda::kWarp;
using cuda::Pack;
using own_attention::ceil_div;

inline constexpr int kLatent = 512;
inline constexpr int kRotated = 64;
inline constexpr int kWidth = kLatent + kRotated;
inline constexpr int kDim = 128;  // of a head's key without what is rotated, and of its value
inline constexpr int kPack = 8;   // elements of 16 bytes
inline constexpr int kThreads = 256;
inline constexpr int kStages = 3;

struct Problem {
  own_attention::Problem attention;  // group = 1; q is below
  const void* q;                     // X[rows, q_stride], of which heads have kDim + kRotated each
  std::int64_t q_stride;
  const float* table;  // [rows, kRotated]
  bool interleaved;
  const void* keys;    // X[heads, kDim, kLatent]
  const void* values;  // X[heads, kDim, kLatent]
  void* made;          // X[capacity, heads, 2, kDim]: keys and values
  LatentForms forms;
};

// Rows of 16-byte packs, permuted by the row's number, so that eight rows at one column lie in different banks.
template <class T, int kRows, int kPacks>
struct Tile {
  Pack<T, kPack> at[kRows * kPacks];
  __device__ Pack<T, kPack>* pack(int row, int column) { return at + row * kPacks + (column ^ (row & 7)); }
};

// The row of the cache of a request's position.
template <class T>
__device__ inline const T* cache_row(const own_attention::Problem& p, int request, int position) {
  const int page = p.page_table[static_cast<std::int64_t>(request) * p.max_pages + position / p.page_size];
  return static_cast<const T*>(p.k_cache) +
         (static_cast<std::int64_t>(page) * p.page_size + position % p.page_size) * kWidth;
}

inline constexpr int kStep = 64;  // of the latent
inline constexpr int kStepPacks = kStep / kPack;

template <class T>
union MakeMemory {
  struct {
    Tile<T, kDim, kStepPacks> weights;
    Tile<T, latent::kKeyRows, kStepPacks> rows;
  } stages[kStages];
  Tile<T, latent::kKeyRows, kDim / kPack> out;
};

// Keys or values of one head for parts of 128 rows. Grid [heads · 2, parts that run side by side]: blocks take every
// gridDim.y-th part. Each of the eight warps has 64 rows and 32 columns.
template <class T>
__global__ void __launch_bounds__(kThreads, 2) make_keys(const Problem p) {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  auto& memory = *reinterpret_cast<MakeMemory<T>*>(shared_bytes);
  cuda::let_next_begin();
  cuda::wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int first_row = thread / kWarp % 2 * 64;
  const int first_column = thread / kWarp / 2 * 32;
  const int head = static_cast<int>(blockIdx.x) / 2;
  const bool values = blockIdx.x % 2 == 1;
  const T* weights =
      static_cast<const T*>(values ? p.values : p.keys) + static_cast<std::int64_t>(head) * kDim * kLatent;
  constexpr int kCopies = 128 * kStepPacks / kThreads;  // of a thread, of each of both tiles
  const int pack = thread % kStepPacks;

  latent::KeyPart part;
  for (int number = static_cast<int>(blockIdx.y); latent::find_key_part(p.forms, number, part);
       number += static_cast<int>(gridDim.y)) {
    const int count = min(latent::kKeyRows, p.forms.kv_lens[part.request] - part.first);
    const T* from[kCopies];
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int row = i * (kThreads / kStepPacks) + thread / kStepPacks;
      from[i] = cache_row<T>(p.attention, part.request, part.first + min(row, count - 1)) + pack * kPack;
    }
    const auto load = [&](int step) {
      if (step < kLatent / kStep) {
        auto& stage = memory.stages[step % kStages];
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
          const int row = i * (kThreads / kStepPacks) + thread / kStepPacks;
          cuda::copy_async(stage.rows.pack(row, pack), from[i] + step * kStep, true);
          cuda::copy_async(stage.weights.pack(row, pack), weights + row * kLatent + step * kStep + pack * kPack, true);
        }
      }
      cuda::commit_copies();
    };
    float sum[4][4][4] = {};  // tiles of 16 rows, of 8 columns
    for (int step = 0; step < kStages - 1; ++step) load(step);
    for (int step = 0; step < kLatent / kStep; ++step) {
      cuda::wait_for_copies<kStages - 2>();
      __syncthreads();
      load(step + kStages - 1);
      auto& stage = memory.stages[step % kStages];
#pragma unroll
      for (int d = 0; d < kStep / 16; ++d) {
        std::uint32_t a[4][4];
        std::uint32_t b[2][4];
#pragma unroll
        for (int m = 0; m < 4; ++m)
          cuda::load_matrices<false>(a[m], stage.rows.pack(first_row + m * 16 + lane % 16, d * 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < 2; ++n)
          cuda::load_matrices<false>(
              b[n], stage.weights.pack(first_column + n * 16 + lane / 16 * 8 + lane % 8, d * 2 + lane / 8 % 2));
#pragma unroll
        for (int m = 0; m < 4; ++m)
#pragma unroll
          for (int n = 0; n < 4; ++n)
            cuda::multiply_tile<T>(sum[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
      }
    }
    cuda::wait_for_copies<0>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < 4; ++m)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          reinterpret_cast<std::uint32_t*>(
              memory.out.pack(first_row + m * 16 + r * 8 + lane / 4, first_column / kPack + n))[lane % 4] =
              cuda::pack_two<T>(sum[m][n][2 * r], sum[m][n][2 * r + 1]);
    __syncthreads();
    T* const made = static_cast<T*>(p.made) +
                    (static_cast<std::int64_t>(number) * latent::kKeyRows * p.attention.heads + head) * 2 * kDim +
                    (values ? kDim : 0);
    for (int i = thread; i < count * (kDim / kPack); i += kThreads) {
      const int row = i / (kDim / kPack);
      const int column = i % (kDim / kPack);
      cuda::store_pack(made + static_cast<std::int64_t>(row) * p.attention.heads * 2 * kDim + column * kPack,
                       *memory.out.pack(row, column));
    }
    __syncthreads();
  }
}

inline constexpr int kRows = 128;  // of a block of attention: 16 for each of its eight warps
inline constexpr int kKeys = 64;   // of a tile
inline constexpr int kKeyPacks = (kDim + kRotated) / kPack;
inline constexpr int kValuePacks = kDim / kPack;
inline constexpr int kRotatedPacks = kRotated / kPack;

template <class T>
struct AttendMemory {
  Tile<T, kRows, kKeyPacks> q;
  struct {
    Tile<T, kKeys, kKeyPacks> keys;
    Tile<T, kKeys, kValuePacks> values;
  } stages[kStages];
};

template <class T>
__device__ inline void load_queries(const Problem& p, const own_attention::Rows& rows, int head,
                                    Tile<T, kRows, kKeyPacks>& tile) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kKeyPacks; i += kThreads) {
    const int row = i / kKeyPacks;
    const int pack = i % kKeyPacks;
    const bool real = row < rows.rows;
    const std::int64_t at = static_cast<std::int64_t>(rows.query_start) + rows.row_begin + (real ? row : 0);
    cuda::copy_async(tile.pack(row, pack),
                     static_cast<const T*>(p.q) + at * p.q_stride + head * (kDim + kRotated) + pack * kPack, real);
  }
}

// Turns the last kRotated values of the rows.
template <class T>
__device__ inline void turn_queries(const Problem& p, const own_attention::Rows& rows,
                                    Tile<T, kRows, kKeyPacks>& tile) {
  constexpr int kHalf = kRotated / 2;
  for (int i = static_cast<int>(threadIdx.x); i < rows.rows * kHalf; i += kThreads) {
    const int row = i / kHalf;
    const int pair = i % kHalf;
    const auto value = [&](int at) -> T& { return tile.pack(row, (kDim + at) / kPack)->at[at % kPack]; };
    const float* angles = p.table + (static_cast<std::int64_t>(rows.query_start) + rows.row_begin + row) * kRotated;
    cuda::rotate(value(p.interleaved ? 2 * pair : pair), value(p.interleaved ? 2 * pair + 1 : pair + kHalf),
                 angles[pair], angles[kHalf + pair]);
  }
}

// Keys [first, first + kKeys) of the request, zeros from `end` on, so that a weight of zero meets no NaN. `place`: the
// request's first row of keys.
template <class T, class Stage>
__device__ inline void load_keys(const Problem& p, int request, int place, int head, int first, int end, Stage& stage) {
  const int thread = static_cast<int>(threadIdx.x);
  const int pack = thread % kWarp;
#pragma unroll
  for (int i = 0; i < kKeys * kWarp / kThreads; ++i) {
    const int row = i * (kThreads / kWarp) + thread / kWarp;
    const bool real = first + row < end;
    const T* from =
        static_cast<const T*>(p.made) +
        ((static_cast<std::int64_t>(place) + (real ? first + row : 0)) * p.attention.heads + head) * 2 * kDim +
        pack * kPack;
    cuda::copy_async(pack < kValuePacks ? stage.keys.pack(row, pack) : stage.values.pack(row, pack - kValuePacks), from,
                     real);
  }
#pragma unroll
  for (int i = 0; i < kKeys * kRotatedPacks / kThreads; ++i) {
    const int row = i * (kThreads / kRotatedPacks) + thread / kRotatedPacks;
    const int rotated = thread % kRotatedPacks;
    const bool real = first + row < end;
    cuda::copy_async(stage.keys.pack(row, kValuePacks + rotated),
                     cache_row<T>(p.attention, request, real ? first + row : 0) + kLatent + rotated * kPack, real);
  }
}

// Grid [heads, slots of tiles of rows]; the last tiles see the most keys and begin first.
template <class T>
__global__ void __launch_bounds__(kThreads, 1) attend(const Problem p) {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  auto& memory = *reinterpret_cast<AttendMemory<T>*>(shared_bytes);
  cuda::let_next_begin();
  cuda::wait_for_previous();
  own_attention::Rows rows;
  if (!own_attention::find_rows(p.attention, static_cast<int>(gridDim.y - 1 - blockIdx.y), kRows, rows)) return;
  const int place = latent::direct_place(p.forms, rows.request);
  if (place < 0) return;
  const int head = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first_row = static_cast<int>(threadIdx.x) / kWarp * 16;
  const int end = rows.offset + rows.row_begin + rows.rows;  // of the keys that any row sees
  const int tiles = ceil_div(end, kKeys);
  const auto load = [&](int tile) {
    if (tile < tiles) load_keys<T>(p, rows.request, place, head, tile * kKeys, end, memory.stages[tile % kStages]);
    cuda::commit_copies();
  };
  load_queries<T>(p, rows, head, memory.q);
  for (int tile = 0; tile < kStages - 1; ++tile) load(tile);
  cuda::wait_for_copies<kStages - 2>();
  __syncthreads();
  turn_queries<T>(p, rows, memory.q);
  __syncthreads();
  std::uint32_t q[kKeyPacks / 2][4];
#pragma unroll
  for (int d = 0; d < kKeyPacks / 2; ++d)
    cuda::load_matrices<false>(q[d], memory.q.pack(first_row + lane % 16, d * 2 + lane / 16));

  const float scale_log2 = p.attention.scale * 1.44269504088896f;
  const int first_position = rows.offset + rows.row_begin + first_row;  // of the warp's rows
  const int position = first_position + lane / 4;                       // of the lane's: this one and position + 8
  float out[kDim / 8][4] = {};
  float greatest[2] = {-INFINITY, -INFINITY};
  float total[2] = {};
  for (int tile = 0; tile < tiles; ++tile) {
    cuda::wait_for_copies<kStages - 2>();
    __syncthreads();
    load(tile + kStages - 1);
    if (tile * kKeys > first_position + 15) continue;  // none of the warp's rows sees a key of it
    auto& stage = memory.stages[tile % kStages];
    float score[kKeys / 8][4] = {};
#pragma unroll
    for (int d = 0; d < kKeyPacks / 4; ++d)
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        std::uint32_t b[4];
        cuda::load_matrices<false>(b, stage.keys.pack(n * 8 + lane % 8, d * 4 + lane / 8));
        cuda::multiply_tile<T>(score[n], q[2 * d], b[0], b[1]);
        cuda::multiply_tile<T>(score[n], q[2 * d + 1], b[2], b[3]);
      }
    if (tile * kKeys + kKeys - 1 > first_position) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (tile * kKeys + n * 8 + lane % 4 * 2 + i % 2 > position + i / 2 * 8) score[n][i] = -INFINITY;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float now = greatest[r];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) now = fmaxf(now, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
      // Every row sees the first key, so that `now` is a number.
      const float shrink = exp2f((greatest[r] - now) * scale_log2);
      const float offset = now * scale_log2;
      greatest[r] = now;
      total[r] *= shrink;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        out[n][2 * r] *= shrink;
        out[n][2 * r + 1] *= shrink;
      }
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& weight = score[n][2 * r + i];
          weight = exp2f(fmaf(weight, scale_log2, -offset));
          total[r] += weight;
        }
    }
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      const std::uint32_t a[4] = {cuda::pack_two<T>(score[2 * k][0], score[2 * k][1]),
                                  cuda::pack_two<T>(score[2 * k][2], score[2 * k][3]),
                                  cuda::pack_two<T>(score[2 * k + 1][0], score[2 * k + 1][1]),
                                  cuda::pack_two<T>(score[2 * k + 1][2], score[2 * k + 1][3])};
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
        std::uint32_t v[4];
        cuda::load_matrices<true>(v, stage.values.pack(k * 16 + lane % 16, n * 2 + lane / 16));
        cuda::multiply_tile<T>(out[2 * n], a, v[0], v[1]);
        cuda::multiply_tile<T>(out[2 * n + 1], a, v[2], v[3]);
      }
    }
  }
  cuda::wait_for_copies<0>();

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    total[r] += __shfl_xor_sync(0xffffffffu, total[r], 1);
    total[r] += __shfl_xor_sync(0xffffffffu, total[r], 2);
    const int row = first_row + lane / 4 + 8 * r;
    if (row >= rows.rows) continue;
    const float inverse = 1.0f / total[r];
    const std::int64_t at =
        (static_cast<std::int64_t>(rows.query_start) + rows.row_begin + row) * p.attention.heads + head;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
      *reinterpret_cast<std::uint32_t*>(static_cast<T*>(p.attention.out) + at * kDim + n * 8 + lane % 4 * 2) =
          cuda::pack_two<T>(out[n][2 * r] * inverse, out[n][2 * r + 1] * inverse);
  }
}

}  // namespace tessera::direct_form
