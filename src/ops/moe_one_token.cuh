// moe_experts of one token whose weights have 4 bits: gate and up, then down and the sum over the token's experts.
//
// The floor is the bytes of the chosen experts: 4 of 3 x 2880 x 2880 are 53 MB, 12 µs at 4.3 TB/s. Unpacking takes 20
// instructions for eight values, 8 µs of all schedulers, and runs beside the loads if nothing else holds a warp up. So
// a warp works alone: it has 16 weight rows, whose next columns are on their way to registers while it multiplies, and
// meets others at its end. Every row of the token has an expert of its own, so that nothing is sorted.
//
// A unit of gate and up is 8 columns of one expert, for two warps, which take the steps of k in turn. Of the
// tensor-core instructions the gates' rows and the ups' are the first matrix, and x is every column of the second: a
// thread has the sums of both. A block of down has 8 columns of all experts; a warp has those of two experts, in every
// so-manieth step of k. The even columns of the second matrix are the one expert's row of x, the odd ones the other's.
//
// x lies in the order in which threads multiply it (place_of()), in shared memory, and for down as gate and up writes
// it. Down asks for its first weights before gate and up has ended.
#pragma once

#include "tessera/ops/moe_mxfp4.cuh"
#include "tessera/ops/tensor_core.cuh"

namespace tessera::cuda::moe {

inline constexpr int kTokenColumns = 8;              // of y, of a unit
inline constexpr int kTokenStep = 4 * kPackedBlock;  // columns of a warp at a time: a block to a thread of a quad
inline constexpr int kTokenAhead = 2;                // steps on their way
inline constexpr int kTokenShares = 2;               // warps of a unit
inline constexpr int kTokenMostWarps = 22;           // of a block of gate and up
inline constexpr int kTokenDownWarps = 8;            // of a block of down

// Columns in whole steps.
constexpr std::int64_t token_columns(std::int64_t k) { return (k + kTokenStep - 1) / kTokenStep * kTokenStep; }

// Where eight columns lie, counted in eights: of a step first the first eight of each of its four blocks.
__device__ inline int place_of(int eight) { return eight / 16 * 16 + eight % 4 * 4 + eight / 4 % 4; }

// Two weight rows of a thread, of which it has one block in each step.
template <class T>
class PackedWalk {
 public:
  // Rows as the stack counts them. The warp's steps are first, first + stride, …; the first ones are asked for.
  __device__ PackedWalk(const Matmul<T>& p, std::int64_t low, std::int64_t high, int first, int stride)
      : blocks_(p.k / kPackedBlock),
        next_(first * 4 + static_cast<int>(threadIdx.x) % 4),
        stride_(stride * 4),
        packed_{p.packed + low * p.k / 2, p.packed + high * p.k / 2},
        scales_{p.scales + low * blocks_, p.scales + high * blocks_} {
#pragma unroll
    for (int i = 0; i < kTokenAhead; ++i) load(i);
  }

  // Asks for the next step; zeros past the end.
  __device__ void load(int slot) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      words_[slot][half] = make_uint4(0, 0, 0, 0);
      scale_[slot][half] = 0;
      if (next_ < blocks_) {
        words_[slot][half] = __ldcs(reinterpret_cast<const uint4*>(packed_[half]) + next_);
        scale_[slot][half] = scales_[half][next_];
      }
    }
    next_ += stride_;
  }

  // sum += weights · x, of which the thread has its block's columns in pairs.
  __device__ void multiply(int slot, const uint4 (&x)[4], float (&sum)[4]) const {
    const PackedFactor low(scale_[slot][0]);
    const PackedFactor high(scale_[slot][1]);
    if (__any_sync(0xffffffffu, low.is_large() || high.is_large())) {
      multiply<true>(slot, low, high, x, sum);
    } else {
      multiply<false>(slot, low, high, x, sum);
    }
  }

 private:
  template <bool kLarge>
  __device__ void multiply(int slot, const PackedFactor& low, const PackedFactor& high, const uint4 (&x)[4],
                           float (&sum)[4]) const {
    const uint4& a = words_[slot][0];
    const uint4& b = words_[slot][1];
    const std::uint32_t words[2][4] = {{a.x, a.y, a.z, a.w}, {b.x, b.y, b.z, b.w}};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t w[2][4];
      unpack_word<kLarge>(words[0][i], low, w[0]);
      unpack_word<kLarge>(words[1][i], high, w[1]);
      multiply_tile<T>(sum, {w[0][0], w[1][0], w[0][1], w[1][1]}, x[i].x, x[i].y);
      multiply_tile<T>(sum, {w[0][2], w[1][2], w[0][3], w[1][3]}, x[i].z, x[i].w);
    }
  }

  int blocks_;
  int next_;
  int stride_;
  const std::uint8_t* packed_[2];
  const std::uint8_t* scales_[2];
  uint4 words_[kTokenAhead][2];
  unsigned scale_[kTokenAhead][2];
};

__device__ inline bool is_expert(int id, int experts) { return id >= 0 && id < experts; }

// A thread's block of a step; `x` begins with the step.
__device__ inline void load_block(const uint4* x, uint4 (&columns)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) columns[j] = x[j * 4 + static_cast<int>(threadIdx.x) % 4];
}

// Until both warps of a unit are there.
__device__ inline void sync_unit(int unit_of_block) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + unit_of_block), "n"(kTokenShares * kWarp) : "memory");
}

// Any grid of blocks of whole units. Dynamic shared memory: T[token_columns(k)]. Preconditions: k and n are multiples
// of 32. Down may begin when this kernel has waited: what the router wrote is there then.
template <class T>
__global__ void __launch_bounds__(kTokenMostWarps* kWarp, 1) token_gate_up(const Matmul<T> p, const std::int32_t* ids) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float2 other[kTokenMostWarps / kTokenShares][kTokenColumns];
  auto* const x = reinterpret_cast<uint4*>(shared);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int of_block = warp / kTokenShares;
  const int share = warp % kTokenShares;
  const int eights = static_cast<int>(token_columns(p.k)) / 8;
  const int steps = eights * 8 / kTokenStep;
  const int of_expert = p.n / kTokenColumns;
  const int stride = static_cast<int>(gridDim.x * blockDim.x) / (kTokenShares * kWarp);
  wait_for_previous();
  let_next_begin();
  for (int i = static_cast<int>(threadIdx.x); i < eights; i += static_cast<int>(blockDim.x)) {
    std::uint32_t pairs[4] = {};
    if (i < p.k / 8) pair_up(reinterpret_cast<const uint4*>(p.x)[i], pairs);
    x[place_of(i)] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
  __syncthreads();

  for (int unit = static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) * of_block; unit < p.top_k * of_expert;
       unit += stride) {
    const int pair = unit / of_expert;
    const int first = unit % of_expert * kTokenColumns;
    const int expert = ids[pair];
    if (!is_expert(expert, p.experts)) continue;
    const std::int64_t row = static_cast<std::int64_t>(expert) * p.w_rows + first + lane / 4;
    PackedWalk<T> weights(p, row, row + p.n, share, kTokenShares);
    float2 bias = make_float2(0, 0);
    if (p.bias != nullptr) bias = make_float2(to_float(p.bias[row]), to_float(p.bias[row + p.n]));
    float sum[4] = {};
    for (int begin = share; begin < steps; begin += kTokenAhead * kTokenShares) {
#pragma unroll
      for (int i = 0; i < kTokenAhead; ++i) {
        const int step = begin + i * kTokenShares;
        if (step >= steps) break;
        uint4 columns[4];
        load_block(x + step * (kTokenStep / 8), columns);
        weights.multiply(i, columns, sum);
        weights.load(i);
      }
    }
    if (share != 0 && lane % 4 == 0) other[of_block][lane / 4] = make_float2(sum[0], sum[2]);
    sync_unit(of_block);
    if (share == 0 && lane % 4 == 0) {
      const float2 more = other[of_block][lane / 4];
      const int in_eight = lane / 4 % 4 * 2 + lane / 16;  // of column lane / 4, in pairs
      p.y[pair * token_columns(p.n) + place_of(first / 8) * 8 + in_eight] =
          from_float<T>(activate<T>(sum[0] + more.x + bias.x, sum[2] + more.y + bias.y, p.activation, p.limit));
    }
    sync_unit(of_block);  // before the next unit's sums
  }
}

// Grid: n / 8. x: [top_k, token_columns(k)] of token_gate_up(). y: [n]. Preconditions: top_k <= 2 · kTokenDownWarps; k
// and n are multiples of 32.
template <class T>
__global__ void __launch_bounds__(kTokenDownWarps* kWarp, 3)
    token_down(const Matmul<T> p, const std::int32_t* ids, const float* factors) {
  __shared__ float sums[kTokenDownWarps][2][kTokenColumns];
  __shared__ float parts[kTokenDownWarps * kWarp];
  let_next_begin();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int first = static_cast<int>(blockIdx.x) * kTokenColumns;
  const int couples = (p.top_k + 1) / 2;  // of experts
  const int stride = kTokenDownWarps / couples;
  const int couple = thread / kWarp % couples;
  const int steps = static_cast<int>(token_columns(p.k)) / kTokenStep;
  // What the router chose was there before gate and up let this kernel begin.
  const auto expert_of = [&](int pair) {
    const int id = pair < p.top_k ? __ldcg(ids + pair) : -1;
    return is_expert(id, p.experts) ? id : -1;
  };
  const int chosen[2] = {expert_of(couple * 2), expert_of(couple * 2 + 1)};
  // Beside a missing expert its partner's rows are multiplied twice, which reads nothing more. A couple without experts
  // has no steps, and nor has a warp for which none is left: they begin past the end and load nothing.
  const int present = max(chosen[0], chosen[1]);
  const int own_step = thread / kWarp / couples;
  const int first_step = own_step < stride && present >= 0 ? own_step : steps;
  const auto row_of = [&](int expert) {
    return static_cast<std::int64_t>(max(expert >= 0 ? expert : present, 0)) * p.w_rows + first + lane / 4;
  };
  PackedWalk<T> weights(p, row_of(chosen[0]), row_of(chosen[1]), first_step, stride);
  // A thread ends with a column of one expert.
  const int own_pair = thread / kTokenColumns;
  const int own_column = thread % kTokenColumns;
  const int own_expert = expert_of(own_pair);
  float factor = 0;
  float bias = 0;
  if (own_expert >= 0) {
    factor = __ldcg(factors + own_pair);
    if (p.bias != nullptr)
      bias = to_float(p.bias[static_cast<std::int64_t>(own_expert) * p.w_rows + first + own_column]);
  }
  wait_for_previous();

  const int pair = min(couple * 2 + lane / 4 % 2, p.top_k - 1);
  const auto* const x = reinterpret_cast<const uint4*>(p.x + pair * token_columns(p.k));
  // Of blocks past the end nobody wrote columns.
  const auto load_x = [&](int step, uint4(&columns)[4]) {
    if (step * 4 + lane % 4 < p.k / kPackedBlock) {
      load_block(x + step * (kTokenStep / 8), columns);
    } else {
#pragma unroll
      for (uint4& eight : columns) eight = make_uint4(0, 0, 0, 0);
    }
  };
  float sum[4] = {};
  uint4 next[4];
  load_x(first_step, next);
  for (int begin = first_step; begin < steps; begin += kTokenAhead * stride) {
#pragma unroll
    for (int i = 0; i < kTokenAhead; ++i) {
      const int step = begin + i * stride;
      if (step >= steps) break;
      const uint4 columns[4] = {next[0], next[1], next[2], next[3]};
      load_x(step + stride, next);
      weights.multiply(i, columns, sum);
      weights.load(i);
    }
  }
  if (lane % 4 == 0) {
    sums[thread / kWarp][0][lane / 4] = sum[0];
    sums[thread / kWarp][1][lane / 4] = sum[3];
  }
  __syncthreads();
  float part = 0;
  if (own_expert >= 0) {
    for (int s = 0; s < stride; ++s) part += sums[s * couples + own_pair / 2][own_pair % 2][own_column];
    part = factor * rounded<T>(part + bias);
  }
  parts[thread] = part;
  __syncthreads();
  if (thread >= kTokenColumns) return;
  float y = 0;
  for (int k = 0; k < p.top_k; ++k) y += parts[k * kTokenColumns + thread];
  p.y[first + thread] = from_float<T>(y);
}

}  // namespace tessera::cuda::moe
