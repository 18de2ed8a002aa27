// Attention of single-row requests on Hopper. Memory bandwidth limits it, so the kernel is built around loads. Each
// warp has its own ring of stages in shared memory (decode_stages.cuh). As soon as the warp has used a stage, it asks
// the copy engine (TMA) to load the next 16 keys and values of its KV head into this stage. There is no block-wide
// barrier between two loads, and a warp goes on to the keys of the next request without a pause.
//
// A block is one worker of the plan (decode_schedule.h) for one KV head. Its warps take turns at the keys of a segment,
// 16 keys at a time. At the segment's end, the block merges the warps' sums in shared memory. If several workers have
// segments of one request, these segments are the request's parts. The block that ends last merges the parts, so no
// second launch is needed.
//
// Tensor cores compute keys · queries, and then values · weights. Each product has 16 rows and 8 columns. The rows are
// keys in the first product, and elements of a head in the second. The columns are up to 8 query heads.
//
// A cache of E4M3 takes half the bytes of a 16-bit cache, so there are twice as many stages. Lanes widen the loaded
// numbers exactly to float16 before they multiply: that takes one instruction for two numbers, and bfloat16 would take
// four. Queries of bfloat16 become float16 too, each head's multiplied by a power of two by which its scores are
// divided again (narrow_queries()). A load gives each lane four neighbouring elements of an
// E4M3 key, but only two of a 16-bit key. So the products see the elements of an E4M3 key in a permuted order, and
// queries and sums are stored in the same permuted order: of 16 elements, element 4 · i + j, where i and j are 0 … 3,
// is at 2 · i + j if j < 2, and at 2 · i + j + 6 otherwise.
//
// A block may ask for its first keys before it waits for the preceding kernels (cuda_launch.cuh), if this forward does
// not write these keys (KeySegment::newest). Earlier forwards have written them completely, because every forward
// begins with launches that wait for all earlier work. A block may read lists and page tables early too, because they
// are copied to the device before the forward.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/ops/attention/decode_stages.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/online_softmax.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"

namespace tessera::cuda {

inline constexpr float kLog2E = 1.44269504088896f;

// The type in which keys are multiplied by queries, and values by weights.
template <class T, class Y>
using FactorOf = std::conditional_t<kIsFloat8<Y>, __half, T>;

// Loads the queries of one row. Lane l holds elements of query head l / 4 of the block's KV head. If the KV head has
// fewer query heads, the lane holds zeros.
template <class T, class Y, int kHeadDim>
__device__ inline void load_queries(const DecodeAttention<T>& p, int row, std::uint32_t (&q)[kHeadDim / 16][2]) {
  const int group = p.parts.heads / p.parts.kv_heads;
  const int head = static_cast<int>(threadIdx.x) / 4;
  const std::int64_t at = static_cast<std::int64_t>(row) * p.parts.heads + static_cast<int>(blockIdx.y) * group + head;
  // A lane holds four of every 16 elements, in two registers of two elements. For E4M3 all four are neighbours. For
  // other types the second pair lies 8 elements after the first.
  const T* const from = p.q + at * kHeadDim + threadIdx.x % 4 * (kIsFloat8<Y> ? 4 : 2);
#pragma unroll
  for (int d = 0; d < kHeadDim / 16; ++d)
#pragma unroll
    for (int i = 0; i < 2; ++i)
      q[d][i] = head < group ? *reinterpret_cast<const std::uint32_t*>(from + d * 16 + i * (kIsFloat8<Y> ? 2 : 8))
                             : std::uint32_t{};
}

// Converts the queries of load_queries() to float16. Each head's queries are multiplied by a power of two, with which
// the largest is below 2^15. The conversion is exact for queries down to 2^-28 of the largest. Returns the factor that
// undoes this for the lane's head.
template <class T, int kHeadDim>
__device__ inline float narrow_queries(std::uint32_t (&q)[kHeadDim / 16][2]) {
  if constexpr (std::is_same_v<T, __half>) return 1.0f;
  float most = 0.0f;
#pragma unroll
  for (auto& pair : q)
#pragma unroll
    for (const std::uint32_t two : pair) {
      const float2 both = unpack_two<T>(two);
      most = fmaxf(most, fmaxf(fabsf(both.x), fabsf(both.y)));
    }
#pragma unroll
  for (int step = 1; step < 4; step *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
  constexpr std::uint32_t kBias = 127;
  constexpr std::uint32_t kWanted = 14;  // exponent of the largest query afterwards
  const std::uint32_t exponent = max(__float_as_uint(most) >> 23, kWanted + 1);  // biased; both factors stay normal
  const float factor = __uint_as_float((2 * kBias + kWanted - exponent) << 23);
#pragma unroll
  for (auto& pair : q)
#pragma unroll
    for (std::uint32_t& two : pair) {
      const float2 both = unpack_two<T>(two);
      two = pack_two<__half>(both.x * factor, both.y * factor);
    }
  return __uint_as_float((exponent - kWanted) << 23);
}

// One warp's sums for a row. Lane l has the query heads (l % 4) · 2 and (l % 4) · 2 + 1.
template <class T, int kHeadDim>
struct DecodeSums {
  float out[kHeadDim / 16][4];     // [d]: element 16 d + element_of(l, 0) of both heads, then 16 d + element_of(l, 1)
  OnlineSoftmax<BaseTwo> rows[2];  // running max over the warp's keys, and sum of weights over this lane's keys
};

// A lane has the sums of two of every 16 elements. Returns the index (0 … 15) of the lane's element i (0 or 1).
template <class Y>
__device__ inline int element_of(int lane, int i) {
  return kIsFloat8<Y> ? lane / 4 * 2 + i : lane / 4 + i * 8;
}

template <class T, class Y, int kHeadDim>
__device__ inline void multiply_keys(float (&score)[4], const unsigned char* keys,
                                     const std::uint32_t (&q)[kHeadDim / 16][2]) {
  using Factor = FactorOf<T, Y>;
  constexpr int kBytes = kRowBytes<Y, kHeadDim>;
  const int lane = static_cast<int>(threadIdx.x);
  float odd[4] = {};  // the sums of a second, independent chain of products
  if constexpr (kIsFloat8<Y>) {
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d += 2) {
      std::uint32_t loaded[4];  // pack d of keys 0 … 7 and of keys 8 … 15, then pack d + 1 of both
      load_matrices<false>(loaded, pack_in_box<kBytes>(keys, lane % 16, d + lane / 16));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t low = loaded[half * 2];
        const std::uint32_t high = loaded[half * 2 + 1];
        const std::uint32_t k[4] = {widen_two<Factor>(low), widen_two<Factor>(high), widen_two<Factor>(low >> 16),
                                    widen_two<Factor>(high >> 16)};
        multiply_tile<Factor>(half == 0 ? score : odd, k, q[d + half][0], q[d + half][1]);
      }
    }
  } else {
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; ++d) {
      std::uint32_t k[4];
      load_matrices<false>(k, pack_in_box<kBytes>(keys, lane % 16, d * 2 + lane / 16));
      multiply_tile<T>(d % 2 == 0 ? score : odd, k, q[d][0], q[d][1]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) score[i] += odd[i];
}

// Adds weights · values to `out`, for 16 keys and 16 elements of E4M3 values. The arguments are this thread's
// fragments. `low` and `high` are the weights. `first` and `second` were loaded transposed. Each has four bytes: two
// elements of one key's value, and the same two elements of the next key's value.
__device__ inline void multiply_values(float (&out)[4], std::uint32_t first, std::uint32_t second, std::uint32_t low,
                                       std::uint32_t high) {
  constexpr unsigned kEven = 0x20;  // bytes 0 and 2: the first element of both values
  constexpr unsigned kOdd = 0x31;   // bytes 1 and 3: the second element
  const std::uint32_t v[4] = {
      widen_two<__half>(__byte_perm(first, 0, kEven)), widen_two<__half>(__byte_perm(first, 0, kOdd)),
      widen_two<__half>(__byte_perm(second, 0, kEven)), widen_two<__half>(__byte_perm(second, 0, kOdd))};
  multiply_tile<__half>(out, v, low, high);
}

// Turns the scores of 16 keys into weights, in place, and adds the weights and the weighted values to the sums.
template <class Y, class T, int kHeadDim>
__device__ inline void add_values(DecodeSums<T, kHeadDim>& sums, float (&score)[4], const unsigned char* values) {
  const int lane = static_cast<int>(threadIdx.x);
  float shrink[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float most = fmaxf(score[h], score[h + 2]);
#pragma unroll
    for (int step = 4; step < kWarp; step *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    // The maximum is finite, because a row sees at least one of these keys.
    shrink[h] = sums.rows[h].raise(fmaxf(most, sums.rows[h].running_max));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    score[i] = sums.rows[i % 2].weight(score[i]);
    sums.rows[i % 2].sum += score[i];
  }
  using Factor = FactorOf<T, Y>;
  const std::uint32_t low = transpose_matrix(pack_two<Factor>(score[0], score[1]));
  const std::uint32_t high = transpose_matrix(pack_two<Factor>(score[2], score[3]));
  // The running maxima seldom rise after the first keys.
  if (__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums.out[d][i] *= shrink[i % 2];
  }
  constexpr int kBytes = kRowBytes<Y, kHeadDim>;
  if constexpr (kIsFloat8<Y>) {
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d += 2) {
      std::uint32_t v[4];  // pack d of values 0 … 7 and of values 8 … 15, then pack d + 1 of both
      load_matrices<true>(v, pack_in_box<kBytes>(values, lane % 16, d + lane / 16));
      multiply_values(sums.out[d], v[0], v[1], low, high);
      multiply_values(sums.out[d + 1], v[2], v[3], low, high);
    }
  } else {
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; ++d) {
      std::uint32_t v[4];
      load_matrices<true>(v, pack_in_box<kBytes>(values, lane % 8 + lane / 16 * 8, d * 2 + lane / 8 % 2));
      multiply_tile<T>(sums.out[d], v, low, high);
    }
  }
}

// Computes the segments of worker blockIdx.x for KV head blockIdx.y. threadIdx.x is a lane, and threadIdx.y a warp.
template <class T, class Y, int kHeadDim>
__global__ void __launch_bounds__(kDecodeWarps<Y, kHeadDim>* kWarp, 1)
    decode_attention(const __grid_constant__ DecodeAttention<T> p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using Shared = DecodeShared<Y, kHeadDim>;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes);
  const int lane = static_cast<int>(threadIdx.x);
  const int warp = static_cast<int>(threadIdx.y);
  const int kv_head = static_cast<int>(blockIdx.y);
  let_next_begin();
  const KeySegment* const begin = p.plan.segments + p.plan.starts[blockIdx.x];
  const KeySegment* const end = p.plan.segments + p.plan.starts[blockIdx.x + 1];
  if (begin == end) return wait_for_previous();
  if (lane < Shared::kStages) shared.arrived[warp][lane].init(1);
  if (lane == 0) SharedBarrier::make_visible();
  __syncwarp();

  KeyLoader<T, Y, kHeadDim> loader(p, shared, begin, end);
  int asked = 0;
  while (asked < Shared::kStages && !loader.done() && !loader.has_newest()) loader.load(asked++);
  wait_for_previous();
  let_copies_see_stores();
  while (asked < Shared::kStages && !loader.done()) loader.load(asked++);

  const int group = p.parts.heads / p.parts.kv_heads;
  const int quad = lane / 4;
  const int in_quad = lane % 4;
  const float key_scale = p.scale * scale_or_one(p.scales.keys);
  const float value_scale = scale_or_one(p.scales.values);
  const float scale = p.softcap > 0 ? key_scale / p.softcap : key_scale * kLog2E;
  constexpr int kRowPacks = kRowBytes<Y, kHeadDim> / 16;
  int stage = 0;
  std::uint32_t parity = 0;
  KeySegment s = *begin;
  std::uint32_t q[kHeadDim / 16][2];
  load_queries<T, Y, kHeadDim>(p, s.row, q);
  for (const KeySegment* next = begin + 1;; ++next) {
    float scales[2] = {scale, scale};  // one for each of the lane's heads
    if constexpr (kIsFloat8<Y>) {
      const float undo = narrow_queries<T, kHeadDim>(q);
#pragma unroll
      for (int h = 0; h < 2; ++h) scales[h] *= __shfl_sync(0xffffffffu, undo, (in_quad * 2 + h) * 4);
    }
    DecodeSums<T, kHeadDim> sums{};
    // A sink acts as a key with a zero value. Only the first warp of a request's first part adds the sink. If other
    // warps added it too, the sink would count several times when the sums of warps and parts are merged.
    if (p.sinks != nullptr && s.part == 0 && warp == 0) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (in_quad * 2 + h >= group) continue;
        sums.rows[h].running_max = p.sinks[kv_head * group + in_quad * 2 + h] * kLog2E;
        sums.rows[h].sum = quad == 0 ? 1.0f : 0.0f;
      }
    }
    const int blocks_end = (s.end + kKeyBlock - 1) / kKeyBlock;
    for (int block = s.begin / kKeyBlock + warp; block < blocks_end; block += Shared::kWarps) {
      const int first = block * kKeyBlock;
      const bool whole = first >= s.begin && first + kKeyBlock <= s.end;
      const auto sees = [&](int key) { return whole || (first + key >= s.begin && first + key < s.end); };
      auto& at = shared.stages[warp][stage];
      shared.arrived[warp][stage].wait(parity);
      if (!whole) {  // clear unseen values, because a zero weight times NaN is NaN
        for (int i = lane; i < Shared::kBoxBytes / 16; i += kWarp)
          if (!sees(i / kRowPacks % kKeyBlock)) *reinterpret_cast<uint4*>(at.values + i * 16) = uint4{};
        let_copies_see_shared_stores();
        __syncwarp();
      }
      float score[4] = {};  // scores of the keys `quad` and `quad` + 8
      multiply_keys<T, Y, kHeadDim>(score, at.keys, q);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[i] *= scales[i % 2];
        if (p.softcap > 0) score[i] = p.softcap * kLog2E * tanhf(score[i]);
        if (!sees(quad + i / 2 * 8)) score[i] = -INFINITY;
      }
      add_values<Y>(sums, score, at.values);
      __syncwarp();
      if (!loader.done()) loader.load(stage);
      if (++stage == Shared::kStages) {
        stage = 0;
        parity ^= 1;
      }
    }

#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int step = 4; step < kWarp; step *= 2)
        sums.rows[h].sum += __shfl_xor_sync(0xffffffffu, sums.rows[h].sum, step);
      if (in_quad * 2 + h >= group) continue;
      if (quad == 0) {
        shared.sums.running_max[warp][in_quad * 2 + h] = sums.rows[h].running_max;
        shared.sums.total[warp][in_quad * 2 + h] = sums.rows[h].sum;
      }
#pragma unroll
      for (int d = 0; d < kHeadDim / 16; ++d)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          shared.sums.values[warp][in_quad * 2 + h][d * 16 + element_of<Y>(lane, i)] =
              sums.out[d][i * 2 + h] * value_scale;
    }
    const KeySegment ended = s;
    if (next != end) {  // load the next segment's queries while the warps' sums are joined
      s = *next;
      load_queries<T, Y, kHeadDim>(p, s.row, q);
    }
    finish_segment<T, kHeadDim, Shared::kWarps>(p.parts, ended, kv_head, shared.sums);
    if (next == end) return;
  }
#endif
}

}  // namespace tessera::cuda
