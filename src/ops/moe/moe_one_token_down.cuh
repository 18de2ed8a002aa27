// The second kernel of moe_experts for one token with 4-bit weights (moe_one_token.cuh). It computes down, and the sum
// over the token's experts.
//
// A block computes 8 columns of y over all experts. A warp takes the rows of two experts and its share of the steps of
// k (kTokenStep columns each), and works alone until its last step. The first weights are loaded before the kernel of
// gate and up has ended. Each thread loads its own weights to shared memory and not to registers, because registers
// could not hold the weights of all steps in flight.
#pragma once

#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/moe/moe_one_token.cuh"

namespace tessera::cuda::moe {

inline constexpr int kTokenDownAhead = 3;  // steps whose loads are in flight
inline constexpr int kTokenDownWarps = 8;  // warps of a block
inline constexpr int kTokenMostExperts = 2 * kTokenDownWarps;

// Returns the bytes of shared memory that one warp's PackedWalk needs: for the weights of the steps in flight, and for
// the scale factors of sixteen rows with k columns.
constexpr std::int64_t walk_bytes(std::int64_t k) {
  return std::int64_t{kTokenDownAhead} * 2 * kWarp * 16 + k / kPackedBlock * 16;
}

// Copies 8 bytes asynchronously. Both addresses are aligned to 8 bytes.
__device__ inline void copy_eight_async(void* to, const void* from) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(address), "l"(from) : "memory");
}

// A warp's loop over sixteen weight rows. Four threads share two of the rows. In each step, each of these threads reads
// one block of both rows.
template <class T>
class PackedWalk {
 public:
  // Begins the loop over the weight rows low … low + 7 and high … high + 7. These numbers count the rows of all experts
  // together. `low` and `high` are multiples of 8. The warp takes the steps first, first + stride and so on. `shared`
  // has walk_bytes(k) bytes.
  __device__ PackedWalk(const Matmul<T>& p, std::int64_t low, std::int64_t high, int first, int stride,
                        unsigned char* shared)
      : blocks_(p.k / kPackedBlock),
        next_(first * 4 + lane() % 4),
        block_(next_),
        stride_(stride * 4),
        packed_{row_of(p, low), row_of(p, high)},
        words_(reinterpret_cast<uint4*>(shared) + lane()),
        scales_(shared + kTokenDownAhead * kSlot * sizeof(uint4)) {
    if (first * 4 < blocks_) {
      for (int i = lane(); i < blocks_; i += kWarp) {
        copy_eight_async(scales_ + i * 8, p.scales + low * blocks_ + i * 8);
        copy_eight_async(scales_ + (blocks_ + i) * 8, p.scales + high * blocks_ + i * 8);
      }
    }
    scales_ += lane() / 4 * blocks_;
  }

  // Starts loading the next step. Past the end of the rows, load() writes zeros. The caller commits the group of copies
  // (cp.async).
  __device__ void load(int slot) {
    const bool real = next_ < blocks_;
    copy_async(words_ + slot * kSlot, packed_[0] + next_, real);
    copy_async(words_ + slot * kSlot + kWarp, packed_[1] + next_, real);
    next_ += stride_;
  }

  // Returns the thread's blocks of the oldest loaded step that was not returned yet. `slot` is the slot that load()
  // filled for it. Precondition: the copies to this slot have ended.
  __device__ TwoBlocks blocks(int slot) {
    const int block = min(block_, blocks_ - 1);
    block_ += stride_;
    return {.low = words_[slot * kSlot],
            .high = words_[slot * kSlot + kWarp],
            .low_scale = scales_[block],
            .high_scale = scales_[block + 8 * blocks_]};
  }

 private:
  static constexpr int kSlot = 2 * kWarp;

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ static const uint4* row_of(const Matmul<T>& p, std::int64_t first) {
    return reinterpret_cast<const uint4*>(p.packed + (first + lane() / 4) * p.k / 2);
  }

  int blocks_;
  int next_;
  int block_;
  int stride_;
  const uint4* packed_[2];
  uint4* words_;
  unsigned char* scales_;
};

// Returns the bytes of the dynamic shared memory of token_down().
constexpr std::int64_t token_down_bytes(std::int64_t k) {
  return kTokenDownWarps * (walk_bytes(k) + kTokenDownAhead * kWarp * 16);
}

// Computes down and the sum over experts. gridDim.x is n / 8. x is [top_k, token_columns(k)], written by
// token_gate_up(), and y is [n]. Preconditions: T has 16 bits, k is a multiple of 32, n is a multiple of 8, top_k is at
// most kTokenMostExperts.
template <class T>
__global__ void __launch_bounds__(kTokenDownWarps* kWarp, 3)
    token_down(const Matmul<T> p, const std::int32_t* ids, const float* factors) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float sums[kTokenDownWarps][2][kTokenColumns];
  __shared__ float parts[kTokenDownWarps * kWarp];
  let_next_begin();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int first = static_cast<int>(blockIdx.x) * kTokenColumns;
  const int couples = (p.top_k + 1) / 2;  // two experts form a couple
  const int stride = kTokenDownWarps / couples;
  const int couple = thread / kWarp % couples;
  const int steps = static_cast<int>(token_columns(p.k)) / kTokenStep;
  // The router's results are complete, because the kernel of gate and up waited for them before it let this kernel
  // begin.
  const auto expert_of = [&](int pair) {
    const int id = pair < p.top_k ? __ldcg(ids + pair) : -1;
    return is_expert(id, p.experts) ? id : -1;
  };
  const int chosen[2] = {expert_of(couple * 2), expert_of(couple * 2 + 1)};
  // A couple is the two experts of a warp. If one of them is missing, the rows of the other expert are multiplied
  // twice, without additional reads from memory. A couple without experts has no steps. A warp also has no steps if the
  // other warps take all of them. The loops of such warps begin past the end and load nothing.
  const int present = max(chosen[0], chosen[1]);
  const int own_step = thread / kWarp / couples;
  const int first_step = own_step < stride && present >= 0 ? own_step : steps;
  const auto row_of = [&](int expert) {
    return static_cast<std::int64_t>(max(expert >= 0 ? expert : present, 0)) * p.w_rows + first;
  };
  unsigned char* const own = shared + thread / kWarp * walk_bytes(p.k);
  PackedWalk<T> weights(p, row_of(chosen[0]), row_of(chosen[1]), first_step, stride, own);
#pragma unroll
  for (int i = 0; i < kTokenDownAhead; ++i) weights.load(i);
  commit_copies();
  // At the end, each thread finishes one column of one expert.
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

  // A warp copies a step's columns of x for both experts at once, with 16 lanes for each expert. Rows of x are padded
  // to whole steps. The preceding kernel does not write the padding, so the copy writes zeros for blocks of
  // kPackedBlock columns past column k.
  auto* const x =
      reinterpret_cast<uint4*>(shared + kTokenDownWarps * walk_bytes(p.k)) + thread / kWarp * (kTokenDownAhead * kWarp);
  const auto* const from =
      reinterpret_cast<const uint4*>(p.x + min(couple * 2 + lane / 16, p.top_k - 1) * token_columns(p.k)) + lane % 16;
  const auto load_x = [&](int step, int slot) {
    copy_async(x + slot * kWarp + lane, from + step * (kTokenStep / 8), step * 4 + lane % 4 < p.k / kPackedBlock);
  };
#pragma unroll
  for (int i = 0; i < kTokenDownAhead; ++i) {
    load_x(first_step + i * stride, i);
    commit_copies();
  }
  float sum[2] = {};
  uint4 columns[4] = {};
  int slot = 0;
  for (int step = first_step; step < steps; step += stride) {
    wait_for_copies<kTokenDownAhead - 1>();
    __syncwarp();  // makes the copies of other lanes visible
    if (lane / 8 == lane % 4) load_block(x + slot * kWarp + lane / 4 % 2 * 16, columns);
    multiply_blocks<T, true>(weights.blocks(slot), columns, sum[0], sum[1]);
    __syncwarp();  // all lanes have read the slot before others overwrite it
    weights.load(slot);
    load_x(step + kTokenDownAhead * stride, slot);
    commit_copies();
    if (++slot == kTokenDownAhead) slot = 0;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sum[i] = sum_of_quad(sum[i]);
    if (lane % 4 == 0) sums[thread / kWarp][i][lane / 4] = sum[i];
  }
  __syncthreads();
  float part = 0;
  if (own_expert >= 0) {
    for (int s = 0; s < stride; ++s) part += sums[s * couples + own_pair / 2][own_pair % 2][own_column];
    part = factor * rounded<T>(whole_sum(part) + bias);
  }
  parts[thread] = part;
  __syncthreads();
  if (thread < kTokenColumns) {
    float y = 0;
    for (int k = 0; k < p.top_k; ++k) y += parts[k * kTokenColumns + thread];
    p.y[first + thread] = from_float<T>(y);
  }
}

}  // namespace tessera::cuda::moe
