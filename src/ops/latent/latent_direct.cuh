// The two kernels of latent attention's direct form, for the published sizes (DeepSeek-V2 and V3): a latent of 512
// elements beside 64 rotated elements, and keys and values of 128 elements for each head. Both kernels multiply tiles
// in shared memory on tensor cores, and copy tiles there some steps ahead. The attention kernel uses warpgroup
// instructions, which only sm_90a has.
#pragma once

#include "tessera/ops/attention/own_attention.cuh"
#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_rotary.cuh"
#include "tessera/ops/cuda/online_softmax.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"
#include "tessera/ops/cuda/wgmma.cuh"
#include "tessera/ops/latent/latent_forms.cuh"

namespace tessera::direct_form {

using cuda::kWarp;
using cuda::PermutedRows;
using own_attention::ceil_div;

inline constexpr int kLatent = 512;
inline constexpr int kRotated = 64;
inline constexpr int kWidth = kLatent + kRotated;
inline constexpr int kDim = 128;  // elements in the unrotated part of a head's key, and in its value
inline constexpr int kPack = 8;   // elements in 16 bytes
inline constexpr int kThreads = 256;

struct Problem {
  own_attention::Problem attention;  // has group = 1; `q` and `q_stride` below describe the queries
  const void* q;                     // X[rows, q_stride]; each head has kDim + kRotated elements
  std::int64_t q_stride;
  const float* table;  // [rows, kRotated]
  bool interleaved;
  const void* keys;    // X[heads, kDim, kLatent]
  const void* values;  // X[heads, kDim, kLatent]
  void* made_keys;     // X[capacity, heads, kDim]
  void* made_values;   // X[heads, kDim, capacity]
  LatentForms forms;
};

// Returns the cache row of a position of a request.
template <class T>
__device__ inline const T* cache_row(const own_attention::Problem& p, int request, int position) {
  const int page = p.page_table[static_cast<std::int64_t>(request) * p.max_pages + position / p.page_size];
  return static_cast<const T*>(p.k_cache) +
         (static_cast<std::int64_t>(page) * p.page_size + position % p.page_size) * kWidth;
}

inline constexpr int kStep = 64;  // columns of the latent in a step
inline constexpr int kStepPacks = kStep / kPack;

inline constexpr int kMakeStages = 3;

template <class T>
union MakeMemory {
  struct {
    PermutedRows<T, kDim, kStepPacks> weights;
    PermutedRows<T, latent::kKeyRows, kStepPacks> rows;
  } stages[kMakeStages];
  PermutedRows<T, latent::kKeyRows, kDim / kPack> out;
};

// Makes the keys and the transposed values of all heads. A block makes either the keys or the values of one head:
// blockIdx.x is 2 · head for keys and 2 · head + 1 for values. Key rows are processed in parts of 128 rows. A block
// takes every gridDim.y-th part. Each of the eight warps computes 64 rows and 32 columns of a part. Rows past a
// request's last key repeat the last key's row, because memory that was never written could hold NaN.
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
  constexpr int kCopies = 128 * kStepPacks / kThreads;  // copies of each thread for each of the two tiles
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
        auto& stage = memory.stages[step % kMakeStages];
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
          const int row = i * (kThreads / kStepPacks) + thread / kStepPacks;
          cuda::copy_async(stage.rows.pack(row, pack), from[i] + step * kStep, true);
          cuda::copy_async(stage.weights.pack(row, pack), weights + row * kLatent + step * kStep + pack * kPack, true);
        }
      }
      cuda::commit_copies();
    };
    float sum[4][4][4] = {};  // [tile of 16 rows][tile of 8 columns][sum of this lane]
    for (int step = 0; step < kMakeStages - 1; ++step) load(step);
    for (int step = 0; step < kLatent / kStep; ++step) {
      cuda::wait_for_copies<kMakeStages - 2>();
      __syncthreads();
      load(step + kMakeStages - 1);
      auto& stage = memory.stages[step % kMakeStages];
      auto& left = values ? stage.weights : stage.rows;
      auto& right = values ? stage.rows : stage.weights;
#pragma unroll
      for (int d = 0; d < kStep / 16; ++d) {
        std::uint32_t a[4][4];
        std::uint32_t b[2][4];
#pragma unroll
        for (int m = 0; m < 4; ++m)
          cuda::load_matrices<false>(a[m], left.pack(first_row + m * 16 + lane % 16, d * 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < 2; ++n)
          cuda::load_matrices<false>(
              b[n], right.pack(first_column + n * 16 + lane / 16 * 8 + lane % 8, d * 2 + lane / 8 % 2));
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
    const std::int64_t first = static_cast<std::int64_t>(number) * latent::kKeyRows;
    const std::int64_t stride = values ? p.forms.capacity : static_cast<std::int64_t>(p.attention.heads) * kDim;
    T* const made = values ? static_cast<T*>(p.made_values) + head * kDim * stride + first
                           : static_cast<T*>(p.made_keys) + first * stride + head * kDim;
    for (int i = thread; i < 128 * (kDim / kPack); i += kThreads) {
      const int row = i / (kDim / kPack);
      const int column = i % (kDim / kPack);
      cuda::store_pack(made + row * stride + column * kPack, *memory.out.pack(row, column));
    }
    __syncthreads();
  }
}

inline constexpr int kRows = 128;  // rows in a block of attention: 64 for each of its two warpgroups
inline constexpr int kKeys = 64;   // keys in a tile
inline constexpr int kStages = 3;
inline constexpr int kColumns = 64;  // columns of a matrix in shared memory
inline constexpr int kColumnPacks = kColumns / kPack;
inline constexpr int kParts = (kDim + kRotated) / kColumns;  // number of matrices that hold a query or a key

// cuda::matrix_at() needs matrices that begin at multiples of kMatrixBytes.
inline constexpr std::uint32_t kMatrixBytes = 1024;
template <class T>
struct AttendMemory {
  PermutedRows<T, kRows, kColumnPacks> q[kParts];
  struct {
    PermutedRows<T, kKeys, kColumnPacks> keys[kParts];
    PermutedRows<T, kDim, kColumnPacks> values;  // transposed
  } stages[kStages];
};

template <class T>
__device__ inline void load_queries(const Problem& p, const own_attention::Rows& rows, int head,
                                    AttendMemory<T>& memory) {
  constexpr int kPacks = kParts * kColumnPacks;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks; i += kThreads) {
    const int row = i / kPacks;
    const int pack = i % kPacks;
    const bool real = row < rows.rows;
    const std::int64_t at = static_cast<std::int64_t>(rows.query_start) + rows.row_begin + (real ? row : 0);
    cuda::copy_async(memory.q[pack / kColumnPacks].pack(row, pack % kColumnPacks),
                     static_cast<const T*>(p.q) + at * p.q_stride + head * (kDim + kRotated) + pack * kPack, real);
  }
}

// Rotates the rows of `tile` in place. The tile holds the last kRotated elements of each query.
template <class T>
__device__ inline void turn_queries(const Problem& p, const own_attention::Rows& rows,
                                    PermutedRows<T, kRows, kColumnPacks>& tile) {
  static_assert(kRotated == kColumns);
  constexpr int kHalf = kRotated / 2;
  for (int i = static_cast<int>(threadIdx.x); i < rows.rows * kHalf; i += kThreads) {
    const int row = i / kHalf;
    const int pair = i % kHalf;
    const auto value = [&](int at) -> T& { return tile.pack(row, at / kPack)->at[at % kPack]; };
    const float* angles = p.table + (static_cast<std::int64_t>(rows.query_start) + rows.row_begin + row) * kRotated;
    cuda::rotate(value(p.interleaved ? 2 * pair : pair), value(p.interleaved ? 2 * pair + 1 : pair + kHalf),
                 angles[pair], angles[kHalf + pair]);
  }
}

// Loads the keys [first, first + kKeys) of the request, and their values. Keys from `end` on hold arbitrary numbers.
// `place` is the row of p.made_keys at which the request's keys begin.
template <class T, class Stage>
__device__ inline void load_keys(const Problem& p, int request, int place, int head, int first, int end, Stage& stage) {
  const int thread = static_cast<int>(threadIdx.x);
  constexpr int kMadePacks = kDim / kPack;
  const T* const keys = static_cast<const T*>(p.made_keys);
#pragma unroll
  for (int i = 0; i < kKeys * kMadePacks / kThreads; ++i) {
    const int row = i * (kThreads / kMadePacks) + thread / kMadePacks;
    const int pack = thread % kMadePacks;
    cuda::copy_async(
        stage.keys[pack / kColumnPacks].pack(row, pack % kColumnPacks),
        keys + ((static_cast<std::int64_t>(place) + first + row) * p.attention.heads + head) * kDim + pack * kPack,
        true);
  }
  const T* const values =
      static_cast<const T*>(p.made_values) + static_cast<std::int64_t>(head) * kDim * p.forms.capacity + place + first;
#pragma unroll
  for (int i = 0; i < kDim * kColumnPacks / kThreads; ++i) {
    const int row = i * (kThreads / kColumnPacks) + thread / kColumnPacks;
    const int pack = thread % kColumnPacks;
    cuda::copy_async(stage.values.pack(row, pack),
                     values + static_cast<std::int64_t>(row) * p.forms.capacity + pack * kPack, true);
  }
#pragma unroll
  for (int i = 0; i < kKeys * kColumnPacks / kThreads; ++i) {
    const int row = i * (kThreads / kColumnPacks) + thread / kColumnPacks;
    const int pack = thread % kColumnPacks;
    cuda::copy_async(stage.keys[kParts - 1].pack(row, pack),
                     cache_row<T>(p.attention, request, min(first + row, end - 1)) + kLatent + pack * kPack, true);
  }
}

// Makes this thread's stores to shared memory visible to warpgroup products.
__device__ inline void let_products_see_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Attends to the keys of make_keys(). gridDim.x counts heads, and gridDim.y counts tiles of rows. Blocks past the last
// tile do nothing. The blocks of the last tiles begin first, because these tiles see the most keys.
template <class T>
__global__ void __launch_bounds__(kThreads, 1) attend(const Problem p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const auto base = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_bytes));
  auto& memory =
      *reinterpret_cast<AttendMemory<T>*>(shared_bytes + (kMatrixBytes - base % kMatrixBytes) % kMatrixBytes);
  cuda::let_next_begin();
  cuda::wait_for_previous();
  own_attention::Rows rows;
  if (!own_attention::find_rows(p.attention, static_cast<int>(gridDim.y - 1 - blockIdx.y), kRows, rows)) return;
  const int place = latent::direct_place(p.forms, rows.request);
  if (place < 0) return;
  const int head = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first_of_group = static_cast<int>(threadIdx.x) / cuda::kWarpgroup * 64;  // first row of the warpgroup
  const int first_row = static_cast<int>(threadIdx.x) / kWarp * 16;  // first row of the warp within the warpgroup
  const int end = rows.offset + rows.row_begin + rows.rows;          // end of the keys that any row sees
  const int tiles = ceil_div(end, kKeys);
  const auto load = [&](int tile) {
    if (tile < tiles) load_keys<T>(p, rows.request, place, head, tile * kKeys, end, memory.stages[tile % kStages]);
    cuda::commit_copies();
  };
  load_queries<T>(p, rows, head, memory);
  for (int tile = 0; tile < kStages - 1; ++tile) load(tile);
  cuda::wait_for_copies<kStages - 2>();
  __syncthreads();
  turn_queries<T>(p, rows, memory.q[kParts - 1]);

  const auto address = [](const auto& tile) { return static_cast<std::uint32_t>(__cvta_generic_to_shared(&tile)); };
  std::uint64_t q[kParts];
#pragma unroll
  for (int part = 0; part < kParts; ++part)
    q[part] = cuda::matrix_at(address(memory.q[part]) + static_cast<std::uint32_t>(first_of_group * kColumns * 2));

  const float scale_log2 = p.attention.scale * 1.44269504088896f;
  const int first_position = rows.offset + rows.row_begin + first_row;  // position of the warp's first row
  const int position = first_position + lane / 4;  // position of the lane's first row; its second row is 8 later
  const int last_of_group = rows.offset + rows.row_begin + first_of_group + 63;
  float out[kDim / 2] = {};
  cuda::OnlineSoftmax<cuda::BaseTwo> softmax[2];
  for (int tile = 0; tile < tiles; ++tile) {
    cuda::wait_for_copies<kStages - 2>();
    let_products_see_stores();
    __syncthreads();
    load(tile + kStages - 1);
    if (tile * kKeys > last_of_group) continue;  // none of the warpgroup's rows sees a key of the tile
    auto& stage = memory.stages[tile % kStages];
    float score[kKeys / 2];
    cuda::begin_products();
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const std::uint64_t keys = cuda::matrix_at(address(stage.keys[part]));
#pragma unroll
      for (int d = 0; d < kColumns / 16; ++d)
        cuda::multiply<T, kKeys>(score, q[part] + d * cuda::kMatrixStep, keys + d * cuda::kMatrixStep, part + d > 0);
    }
    cuda::end_products();
    cuda::wait_for_products<0>();
    cuda::hold(score);
    if (tile * kKeys + kKeys - 1 > first_position) {
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i)
        if (tile * kKeys + i / 4 * 8 + lane % 4 * 2 + i % 2 > position + i / 2 % 2 * 8) score[i] = -INFINITY;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float now = softmax[r].running_max;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) now = fmaxf(now, fmaxf(score[4 * n + 2 * r], score[4 * n + 2 * r + 1]));
      now = cuda::quad_max(now);
      const float shrink = softmax[r].raise(now, scale_log2);  // `now` is finite, because every row sees the first key
      const float offset = now * scale_log2;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        out[4 * n + 2 * r] *= shrink;
        out[4 * n + 2 * r + 1] *= shrink;
      }
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& weight = score[4 * n + 2 * r + i];
          weight = cuda::BaseTwo::power(fmaf(weight, scale_log2, -offset));
          softmax[r].sum += weight;
        }
    }
    std::uint32_t weights[kKeys / 16][4];
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[k][i] = cuda::pack_two<T>(score[8 * k + 2 * i], score[8 * k + 2 * i + 1]);
    const std::uint64_t values = cuda::matrix_at(address(stage.values));
    cuda::begin_products();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k)
      cuda::multiply_held<T, kDim>(out, weights[k], values + k * cuda::kMatrixStep, 1);
    cuda::end_products();
    cuda::wait_for_products<0>();
    cuda::hold(out);
  }
  cuda::wait_for_copies<0>();

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    softmax[r].sum += __shfl_xor_sync(0xffffffffu, softmax[r].sum, 1);
    softmax[r].sum += __shfl_xor_sync(0xffffffffu, softmax[r].sum, 2);
    const int row = first_row + lane / 4 + 8 * r;
    if (row >= rows.rows) continue;
    const float inverse = 1.0f / softmax[r].sum;
    const std::int64_t at =
        (static_cast<std::int64_t>(rows.query_start) + rows.row_begin + row) * p.attention.heads + head;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
      *reinterpret_cast<std::uint32_t*>(static_cast<T*>(p.attention.out) + at * kDim + n * 8 + lane % 4 * 2) =
          cuda::pack_two<T>(out[4 * n + 2 * r] * inverse, out[4 * n + 2 * r + 1] * inverse);
  }
#endif
}

}  // namespace tessera::direct_form
