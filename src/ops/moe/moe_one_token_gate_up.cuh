// The first kernel of moe_experts for one token with 4-bit weights, on Hopper (moe_one_token.cuh). It computes gate and
// up.
//
// The kernel cannot request weights until the router has chosen, and then it needs all of them at once. Memory is fast
// when neighbouring bytes are requested together. Therefore the copy engine (TMA) brings eight whole rows at a time, in
// the order in which a block multiplies them. These rows fill the block's shared memory.
//
// A unit is 8 columns of y of one expert. The unit's gate rows and up rows take one slot of the block's ring buffer.
// The block's warps form teams. The warps of a team divide a unit's steps of k among themselves, and the teams take
// units in turn. A wait on a slot's barrier tests only the parity of the phase. This is enough, because a slot is
// always used by the same team, so the team is at most one phase ahead of the barrier.
#pragma once

#include "tessera/ops/cuda/bulk_copy.cuh"
#include "tessera/ops/moe/moe_one_token.cuh"

namespace tessera::cuda::moe {

inline constexpr int kTokenTeam = 6;                 // warps of a team
inline constexpr int kTokenTeams = 4;                // teams of a block; one warp outside them requests weights
inline constexpr int kTokenSlots = 2 * kTokenTeams;  // the slots of the block's ring
inline constexpr int kTokenThreads = (kTokenTeams * kTokenTeam + 1) * kWarp;

// Returns the bytes of eight rows of k weights in shared memory: their values, then their scale factors.
constexpr std::int64_t eight_rows_bytes(std::int64_t k) { return k * 4 + k / 4; }

// Returns the bytes of the dynamic shared memory of token_gate_up(): first the slots, then x.
constexpr std::int64_t token_gate_up_bytes(std::int64_t k) {
  return kTokenSlots * 2 * eight_rows_bytes(k) + token_columns(k) * 2;
}

// Copies eight weight rows to a slot. Only one thread calls this function. `row` is the index of the first of these
// rows, counted over the rows of all experts. The index is a multiple of 8.
template <class T>
__device__ inline void copy_eight_rows(const Matmul<T>& p, std::int64_t row, unsigned char* to, SharedBarrier& full) {
  const auto values = static_cast<std::uint32_t>(p.k) * 4;
  bulk_copy(to, p.packed + row * p.k / 2, values, full);
  bulk_copy(to + values, p.scales + row * (p.k / kPackedBlock), static_cast<std::uint32_t>(p.k) / 4, full);
}

// Requests the block's units one after another. A unit is 8 columns of y of one expert. One thread calls this function
// and does nothing else, because a busy copy engine delays the thread that issues requests.
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

// Returns which of eight weight rows a thread reads. Shared memory serves two quads, which are eight threads, at once.
// If k is an odd multiple of 64, rows a and a + 2 lie in different banks. So one quad reads a row a and the other reads
// row a + 2, which avoids bank conflicts.
__device__ inline int row_of_thread_in_eight() {
  const int quad = static_cast<int>(threadIdx.x) / 4 % 8;
  return (quad & 4) | (quad & 1) << 1 | (quad >> 1 & 1);
}

// The offset of a thread's row from the start of the eight rows that contain it.
class PackedRowOfThread {
 public:
  __device__ explicit PackedRowOfThread(int k)
      : blocks_(k / kPackedBlock),
        values_(row_of_thread_in_eight() * (k / 2) + static_cast<int>(threadIdx.x) % 4 * 16),
        scales_(4 * k + row_of_thread_in_eight() * blocks_) {}

  // Returns the thread's blocks of a step, in the eight rows at `low` and in those at `high`. Past the end of a row the
  // blocks hold arbitrary values, which are multiplied with zeros of x.
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

// Barriers: sync_team() waits for all warps of a team, and sync_teams() waits for all teams of the block.
__device__ inline void sync_team(int team) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "n"(kTokenTeam * kWarp) : "memory");
}
__device__ inline void sync_teams() {
  asm volatile("bar.sync %0, %1;" ::"n"(1 + kTokenTeams), "n"(kTokenTeams * kTokenTeam * kWarp) : "memory");
}

// Computes gate and up. The grid may have any number of blocks, of kTokenThreads threads each. y is [top_k,
// token_columns(n)], and its values are multiplied by kTokenScaleOfX. Nothing is written past column n. Preconditions:
// T has 16 bits, k is a multiple of 64, n is a multiple of 8. This kernel first waits for the router, and only then
// lets the kernel of down begin (let_next_begin()). The router's results are therefore complete when the kernel of down
// begins.
template <class T>
__global__ void __launch_bounds__(kTokenThreads, 1) token_gate_up(const Matmul<T> p, const std::int32_t* ids) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ SharedBarrier full[kTokenSlots], empty[kTokenSlots];
  __shared__ float2 parts[kTokenTeams][2][kTokenTeam][kTokenColumns];
  constexpr int kMultiplying = kTokenTeams * kTokenTeam * kWarp;  // threads that multiply
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int eights = static_cast<int>(token_columns(p.k)) / 8;
  const int of_expert = p.n / kTokenColumns;
  const int rows_bytes = static_cast<int>(eight_rows_bytes(p.k));
  auto* const x = reinterpret_cast<uint4*>(shared + kTokenSlots * 2 * rows_bytes);
  const int blocks = static_cast<int>(gridDim.x);
  const int end = p.top_k * of_expert;  // one past the last unit
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
    for (std::uint32_t& pair : pairs) pair = times(pair, 0x5d805d80u);  // 0x5d80 is kTokenScaleOfX in bfloat16
    x[place_of(i)] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
  sync_teams();

  const int team = thread / kWarp / kTokenTeam;
  const int of_team = thread / kWarp % kTokenTeam;
  const PackedRowOfThread weights(p.k);
  int turn = 0;  // the number, within the team, of the warp that adds up the sums
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
      const int in_eight = lane % 4 * 2 + lane / 4;  // where pair_up() puts column number `lane` of eight columns
      const float y = activate<T>(whole_sum(sum.x) + bias.x, whole_sum(sum.y) + bias.y, p.activation, p.limit);
      p.y[pair * token_columns(p.n) + place_of(first / 8) * 8 + in_eight] = from_float<T>(y * kTokenScaleOfX);
    }
    turn = turn + 1 == kTokenTeam ? 0 : turn + 1;
  }
#endif
}

}  // namespace tessera::cuda::moe
