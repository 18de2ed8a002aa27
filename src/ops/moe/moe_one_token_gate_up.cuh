// moe_experts of one token whose weights have 4 bits, on Hopper: gate and up (moe_one_token.cuh).
//
// Nothing is known of the weights until the router has chosen, and then all are wanted at once. The memory is fast
// where neighbouring bytes are asked for together. So the copy engine brings eight whole rows at a time, and in the
// order in which a block multiplies them: they fill its shared memory.
//
// A unit is 8 columns of y of one expert, whose gates' rows and ups' rows are a slot of the block's ring. A team of
// warps shares the unit's steps of k; teams take units in turn. A slot belongs to one team, which so is never a round
// ahead of what the slot's barrier tells.
#pragma once

#include "tessera/ops/cuda/bulk_copy.cuh"
#include "tessera/ops/moe/moe_one_token.cuh"

namespace tessera::cuda::moe {

inline constexpr int kTokenTeam = 6;                 // warps
inline constexpr int kTokenTeams = 4;                // of a block, whose last warp asks for weights
inline constexpr int kTokenSlots = 2 * kTokenTeams;  // of its ring
inline constexpr int kTokenThreads = (kTokenTeams * kTokenTeam + 1) * kWarp;

// Eight rows of k weights in shared memory: their values, then their factors.
constexpr std::int64_t eight_rows_bytes(std::int64_t k) { return k * 4 + k / 4; }

// Dynamic shared memory of token_gate_up(): slots, then x.
constexpr std::int64_t token_gate_up_bytes(std::int64_t k) {
  return kTokenSlots * 2 * eight_rows_bytes(k) + token_columns(k) * 2;
}

// By one thread. `row`, a multiple of 8, as the stack counts it.
template <class T>
__device__ inline void copy_eight_rows(const Matmul<T>& p, std::int64_t row, unsigned char* to, SharedBarrier& full) {
  const auto values = static_cast<std::uint32_t>(p.k) * 4;
  bulk_copy(to, p.packed + row * p.k / 2, values, full);
  bulk_copy(to + values, p.scales + row * (p.k / kPackedBlock), static_cast<std::uint32_t>(p.k) / 4, full);
}

// The block's units, one after another, by one thread that does nothing else: a copy engine that has much to do holds
// up who asks it for more.
template <class T>
__device__ inline void ask_for_units(const Matmul<T>& p, const std::int32_t* ids, unsigned char* slots,
                                     SharedBarrier* full, SharedBarrier* empty) {
  const int of_expert = p.n / kTokenColumns;
  const int rows_bytes = static_cast<int>(eight_rows_bytes(p.k));
  int i = 0;
  for (int unit = static_cast<int>(blockIdx.x); unit < p.top_k * of_expert; unit += static_cast<int>(gridDim.x), ++i) {
    const int pair = unit / of_expert;
    const int expert = ids[pair];
    const int slot = i % kTokenSlots;
    if (i >= kTokenSlots) empty[slot].wait(static_cast<std::uint32_t>(i / kTokenSlots - 1) % 2);
    if (!is_expert(expert, p.experts)) {
      full[slot].arrive();
      continue;
    }
    const std::int64_t row = static_cast<std::int64_t>(expert) * p.w_rows + (unit - pair * of_expert) * kTokenColumns;
    unsigned char* const to = slots + slot * 2 * rows_bytes;
    full[slot].arrive_and_expect(static_cast<std::uint32_t>(2 * rows_bytes));
    copy_eight_rows(p, row, to, full[slot]);
    copy_eight_rows(p, row + p.n, to + rows_bytes, full[slot]);
  }
}

// Which of eight rows a thread has. Rows a and a + 2 lie in different banks where k is an odd multiple of 64, and eight
// threads are read for at once.
__device__ inline int row_of_thread_in_eight() {
  const int quad = static_cast<int>(threadIdx.x) / 4 % 8;
  return (quad & 4) | (quad & 1) << 1 | (quad >> 1 & 1);
}

// Where a thread's row of eight lies, from where the eight begin.
class PackedRowOfThread {
 public:
  __device__ explicit PackedRowOfThread(int k)
      : blocks_(k / kPackedBlock),
        values_(row_of_thread_in_eight() * (k / 2) + static_cast<int>(threadIdx.x) % 4 * 16),
        scales_(4 * k + row_of_thread_in_eight() * blocks_) {}

  // Its blocks of a step, in the eight rows at `low` and in those at `high`. Past the end of a row they are anything,
  // and x has zeros for them.
  __device__ TwoBlocks blocks(const unsigned char* low, const unsigned char* high, int step) const {
    const int values = values_ + step * (kTokenStep / 2);
    const int scale = scales_ + min(step * 4 + static_cast<int>(threadIdx.x) % 4, blocks_ - 1);
    return {.low = *reinterpret_cast<const uint4*>(low + values),
            .high = *reinterpret_cast<const uint4*>(high + values),
            .low_scale = low[scale],
            .high_scale = high[scale]};
  }

 private:
  int blocks_;
  int values_;
  int scales_;
};

// Until all warps of a team are there; and all teams.
__device__ inline void sync_team(int team) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "n"(kTokenTeam * kWarp) : "memory");
}
__device__ inline void sync_teams() {
  asm volatile("bar.sync %0, %1;" ::"n"(1 + kTokenTeams), "n"(kTokenTeams * kTokenTeam * kWarp) : "memory");
}

// Any grid, of kTokenThreads. y: [top_k, token_columns(n)], times kTokenScaleOfX; past n nothing is written. T has 16
// bits; k is a multiple of 64 and n of 8. Down may begin when this kernel has waited: what the router wrote is there
// then.
template <class T>
__global__ void __launch_bounds__(kTokenThreads, 1) token_gate_up(const Matmul<T> p, const std::int32_t* ids) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ SharedBarrier full[kTokenSlots], empty[kTokenSlots];
  __shared__ float2 parts[kTokenTeams][2][kTokenTeam][kTokenColumns];
  constexpr int kMultiplying = kTokenTeams * kTokenTeam * kWarp;  // threads
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int eights = static_cast<int>(token_columns(p.k)) / 8;
  const int of_expert = p.n / kTokenColumns;
  const int rows_bytes = static_cast<int>(eight_rows_bytes(p.k));
  auto* const x = reinterpret_cast<uint4*>(shared + kTokenSlots * 2 * rows_bytes);
  const int blocks = static_cast<int>(gridDim.x);
  const int end = p.top_k * of_expert;  // of all units
  if (thread == 0) {
    for (int i = 0; i < kTokenSlots; ++i) {
      full[i].init(1);
      empty[i].init(1);
    }
    SharedBarrier::make_visible();
  }
  __syncthreads();
  wait_for_previous();
  let_next_begin();

  if (thread >= kMultiplying) {
    if (lane == 0) ask_for_units(p, ids, shared, full, empty);
    return;
  }

  for (int i = thread; i < eights; i += kMultiplying) {
    std::uint32_t pairs[4] = {};
    if (i < p.k / 8) pair_up(reinterpret_cast<const uint4*>(p.x)[i], pairs);
#pragma unroll
    for (std::uint32_t& pair : pairs) pair = times(pair, 0x5d805d80u);  // kTokenScaleOfX
    x[place_of(i)] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
  sync_teams();

  const int team = thread / kWarp / kTokenTeam;
  const int of_team = thread / kWarp % kTokenTeam;
  const PackedRowOfThread weights(p.k);
  int turn = 0;  // which of the team's warps adds up
  int i = team;
  for (int unit = static_cast<int>(blockIdx.x) + team * blocks; unit < end;
       unit += kTokenTeams * blocks, i += kTokenTeams) {
    const int pair = unit / of_expert;
    const int first = (unit - pair * of_expert) * kTokenColumns;
    const int expert = ids[pair];
    const bool is_real = is_expert(expert, p.experts);
    const bool adds_up = of_team == turn;
    const int slot = i % kTokenSlots;
    float2(&own_parts)[kTokenTeam][kTokenColumns] = parts[team][i / kTokenTeams % 2];
    float2 bias = make_float2(0, 0);
    if (adds_up && lane < kTokenColumns && is_real && p.bias != nullptr) {
      const T* const from = p.bias + static_cast<std::int64_t>(expert) * p.w_rows + first + lane;
      bias = make_float2(to_float(from[0]), to_float(from[p.n]));
    }
    full[slot].wait(static_cast<std::uint32_t>(i / kTokenSlots % 2));
    if (is_real) {
      const unsigned char* const rows = shared + slot * 2 * rows_bytes;
      float gate = 0;
      float up = 0;
      uint4 columns[4] = {};
      for (int step = of_team; step < eights * 8 / kTokenStep; step += kTokenTeam) {
        if (lane / 4 == lane % 4 * 2) load_block(x + step * (kTokenStep / 8), columns);
        multiply_blocks<T, false>(weights.blocks(rows, rows + rows_bytes, step), columns, gate, up);
      }
      gate = sum_of_quad(gate);
      up = sum_of_quad(up);
      if (lane % 4 == 0) own_parts[of_team][row_of_thread_in_eight()] = make_float2(gate, up);
    }
    sync_team(team);
    if (adds_up && lane == 0) empty[slot].arrive();
    if (adds_up && is_real && lane < kTokenColumns) {
      float2 sum = make_float2(0, 0);
#pragma unroll
      for (int w = 0; w < kTokenTeam; ++w)
        sum = make_float2(sum.x + own_parts[w][lane].x, sum.y + own_parts[w][lane].y);
      const int in_eight = lane % 4 * 2 + lane / 4;  // of column `lane`, in pairs
      const float y = activate<T>(whole_sum(sum.x) + bias.x, whole_sum(sum.y) + bias.y, p.activation, p.limit);
      p.y[pair * token_columns(p.n) + place_of(first / 8) * 8 + in_eight] = from_float<T>(y * kTokenScaleOfX);
    }
    turn = turn + 1 == kTokenTeam ? 0 : turn + 1;
  }
#endif
}

}  // namespace tessera::cuda::moe
