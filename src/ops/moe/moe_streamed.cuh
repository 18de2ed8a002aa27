// Computes moe_experts for the rows of a decode step on Hopper. One kernel computes gate and up. A second kernel
// computes down and adds up the results of each token's experts.
//
// The time is bounded by reading the chosen experts, which have 3 · H · I values each (H: hidden size, I: intermediate
// size). Each expert is read once, for any number of rows. Bulk copies (TMA) bring the weights to a ring buffer in each
// block's shared memory. The router's choice is known before gate and up begins. The kernel of down therefore requests
// its first weights as soon as its blocks fit on the multiprocessors, and only then waits for the results of gate and
// up.
//
// Both kernels split the router's choice into groups of up to 8 rows of one expert. In the kernel of gate and up, an
// item of work is a group and 8 columns of y (16 weight rows). A block takes every gridDim.x-th item, so
// multiprocessors have equal work for any number of active experts. In the kernel of down, each block computes 16
// columns of y for all groups. It computes all experts' results for its columns, so it also adds them up.
//
// A team of warps multiplies an item with tensor-core instructions. The weights are the A operand, and the group's rows
// of x are the B operand.
//   - A team of eight warps is a whole block. Each warp multiplies an eighth of k. The warps' sums are added in an
//     order that does not depend on the rows.
//   - For down, k is short, and eight warps would wait for each other longer than they multiply. So a team is one warp,
//     up to sixteen teams of a block multiply different items, and no sums are exchanged.
// Other warps of the block request weights. If rows are short, the time is bounded by how long a warp takes to wait for
// a slot and to start a copy. Therefore copies are as long as possible, and a block with teams of one warp has several
// warps that copy. Each slot is always filled by the same warp, because a wait tests only the parity of a phase of the
// slot's barrier. A second warp could mistake an earlier phase for the expected one.
#pragma once

#include "tessera/ops/moe/moe_streams.cuh"

namespace tessera::cuda::moe {

// A position in the ring buffer: the slot, and the number of completed rounds.
struct StreamedPlace {
  int slot = 0;
  std::uint32_t turn = 0;
  // Moves forward by `step` slots. Precondition: step <= slots.
  __device__ void advance(int step, int slots) {
    slot += step;
    if (slot >= slots) {
      slot -= slots;
      ++turn;
    }
  }
};

// Synchronises the `warps` warps that multiply. The warps that copy do not take part.
__device__ inline void sync_streamed(int warps) { asm volatile("bar.sync 1, %0;" ::"r"(warps * kWarp) : "memory"); }

// If kGateUp, computes the products with gate and up. Otherwise computes the products with down, and sums the results
// of each token's experts. n and k are those of p.matmul. p.pairs is the number of pairs of a token and one of its
// experts. For gate and up, gridDim.x may be any number. For down, it must be n / kStreamedWeightRows. Preconditions: k
// is a multiple of 32; p.pairs <= kStreamedPairs; n is a multiple of 8, and for down of kStreamedWeightRows. The kernel
// of gate and up first waits for the router, and only then lets the kernel of down begin. The router's results are
// therefore complete when the kernel of down begins. Gate and up always have one team. Down may have several. If it has
// several, a stage (what one slot holds) has all k columns, and p.slots is a multiple of p.teams and of kCopyingWarps.
// A block has streamed_threads<kTeam>(p.teams) threads. Its dynamic shared memory holds the slots, and for down also
// T[pairs, kStreamedWeightRows].
template <class T, bool kGateUp, class Weights>
__global__ void __launch_bounds__(kMostThreads<Weights::kTeam>, Weights::kTeam == 1 ? 1 : 2)
    streamed_experts(const Streamed<T> p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ SharedBarrier full[kStreamedSlots], empty[kStreamedSlots];
  __shared__ RowGroups groups;
  constexpr int kColumns = kGateUp ? kStreamedWeightRows / 2 : kStreamedWeightRows;  // columns of y of an item
  constexpr int kTeam = Weights::kTeam;
  constexpr int kChunk = kStreamedChunk<kTeam>;
  constexpr int kCopying = kCopyingWarps<kTeam>;
  static_assert(!kGateUp || kTeam == kTeamOfBlock);
  const Matmul<T>& m = p.matmul;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.slots; ++s) {
      full[s].init(1);
      empty[s].init(kTeam);
    }
    SharedBarrier::make_visible();
  }
  if constexpr (kGateUp) wait_for_previous();
  let_next_begin();
  make_groups(p.ids, p.pairs, m.experts, groups);

  // An item is a group of rows and some columns of y. In the kernel of gate and up, blocks share all items. In the
  // kernel of down, a block processes the items of its own columns.
  const int across = kGateUp ? m.n / kColumns : 1;
  const int group_step = static_cast<int>(gridDim.x) / across;
  const int column_step = static_cast<int>(gridDim.x) % across;
  struct Item {
    int group;
    int column;  // the number of the item's first column of y, divided by kColumns
  };
  const auto block = static_cast<int>(blockIdx.x);
  // Returns the first item that a team multiplies, or that a copying warp loads. `number` is the index of this team or
  // warp in the block. The kernel of gate and up always passes 0.
  const auto first_item = [&](int number) {
    return kGateUp ? Item{block / across, block % across} : Item{number, block};
  };
  // Moves `item` forward by `items` among the items that the block processes. The kernel of gate and up passes 1.
  const auto advance = [&](Item& item, int items) {
    if constexpr (kGateUp) {
      item.group += group_step;
      item.column += column_step;
      if (item.column >= across) item.column -= across, ++item.group;
    } else {
      item.group += items;
    }
  };
  const int stages = (m.k + p.stage_columns - 1) / p.stage_columns;
  // The number of chunks in a stage. A team multiplies one chunk at a time.
  const int chunks = (min(m.k, p.stage_columns) + kChunk - 1) / kChunk;
  const auto columns_of = [&](int stage) { return min(p.stage_columns, m.k - stage * p.stage_columns); };
  // Returns the index of the item's first weight row, counted over the rows of all experts. An item has eight rows from
  // there on, and eight rows that begin `to_high` rows later.
  const auto first_row = [&](const Item& item) {
    return static_cast<std::int64_t>(groups.at(item.group).expert) * m.w_rows + item.column * kColumns;
  };
  const int to_high = kGateUp ? m.n : 8;
  const int multiplying = p.teams * kTeam;  // the number of warps that multiply

  if (warp >= multiplying) {
    const int copying = warp - multiplying;
    StreamedPlace at{.slot = copying};
    StreamedPlace oldest = at;  // the oldest stage in flight
    int started = 0;
    for (Item item = first_item(copying); item.group < groups.count; advance(item, kCopying)) {
      const std::int64_t low = first_row(item);
      const std::int64_t high = low + to_high;
      Weights::prefetch_scales(m, low, high);
      for (int i = 0; i < stages; ++i, at.advance(kCopying, p.slots)) {
        if (at.turn > 0) empty[at.slot].wait((at.turn - 1) & 1);
        if (started++ >= p.in_flight) {
          full[oldest.slot].wait(oldest.turn & 1);
          oldest.advance(kCopying, p.slots);
        }
        const int columns = columns_of(i);
        const int bytes = kStreamedWeightRows * Weights::row_bytes(columns) + Weights::more_bytes(columns);
        if (lane == 0) full[at.slot].arrive_and_expect(static_cast<std::uint32_t>(bytes));
        __syncwarp();
        Weights::copy(m, low, high, i * p.stage_columns, columns, p.pitch, shared + at.slot * p.slot_bytes,
                      full[at.slot]);
      }
    }
    if constexpr (!kGateUp) wait_for_previous();
    return;
  }

  if constexpr (!kGateUp) wait_for_previous();
  const int team = warp / kTeam;
  const int part = warp % kTeam;
  StreamedPlace at{.slot = team};
  // The columns of x and the scales for the next multiplication are loaded during the current one. The `ahead`
  // variables are the position of this load.
  Item ahead = first_item(team);
  int ahead_stage = 0;
  int ahead_chunk = 0;
  const int row = lane / 4;
  const int mine = (part * 4 + lane % 4) * Weights::kColumns;
  const T* of_row = nullptr;
  uint4 next[4];
  typename Weights::Scales next_scales;
  const auto load_next = [&] {
    if (ahead.group >= groups.count) return;
    if (ahead_stage == 0 && ahead_chunk == 0) {
      const RowGroup group = groups.at(ahead.group);
      const int pair = groups.order[group.first + min(row, group.rows - 1)];
      of_row = m.x + static_cast<std::int64_t>(kGateUp ? pair * p.inverse_top_k >> 16 : pair) * m.k;
      const int low = group.expert * m.w_rows + ahead.column * kColumns + row;
      next_scales.begin_item(p, low, low + to_high);
    }
    const int end = ahead_stage * p.stage_columns + columns_of(ahead_stage);
    const int first = ahead_stage * p.stage_columns + ahead_chunk * kChunk;
    next_scales.load(p, first);
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      const int c = first + mine + Weights::column_of(d);
      next[d] = c < end ? *reinterpret_cast<const uint4*>(of_row + c) : make_uint4(0, 0, 0, 0);
    }
    if (++ahead_chunk < chunks) return;
    ahead_chunk = 0;
    if (++ahead_stage < stages) return;
    ahead_stage = 0;
    advance(ahead, p.teams);
  };
  T* const outputs = reinterpret_cast<T*>(shared + p.slots * p.slot_bytes);

  load_next();
  [[maybe_unused]] int turn = 0;
  for (Item item = first_item(team); item.group < groups.count; advance(item, p.teams)) {
    float sum[4] = {};
    // The weight row whose results the thread writes. In a team of several warps it may differ from the row that the
    // thread multiplies.
    const int last_row = kTeam == 1 ? row : static_cast<int>(threadIdx.x) % 8;
    [[maybe_unused]] float factors[2];
    if constexpr (Weights::kHasFactors) {
      factors[0] = Weights::factor(m, first_row(item) + last_row);
      factors[1] = Weights::factor(m, first_row(item) + last_row + to_high);
    }
    for (int i = 0; i < stages; ++i, at.advance(p.teams, p.slots)) {
      const unsigned char* const slot = shared + at.slot * p.slot_bytes;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        uint4 x[4];
#pragma unroll
        for (int d = 0; d < 4; ++d) x[d] = next[d];
        const typename Weights::Scales scales = next_scales;
        load_next();
        if (chunk == 0) full[at.slot].wait(at.turn & 1);
        const int steps = Weights::steps(columns_of(i) - chunk * kChunk, part);
        Weights::multiply(slot, p.pitch, columns_of(i), chunk, x, steps, scales, sum);
      }
      __syncwarp();
      if (lane == 0) empty[at.slot].arrive();
    }

    const RowGroup group = groups.at(item.group);
    // Writes the results of row r of the group for weight rows last_row and last_row + 8 of the item.
    const auto finish = [&](int r, float low, float high) {
      if constexpr (Weights::kHasFactors) low *= factors[0], high *= factors[1];
      const int pair = groups.order[group.first + r];
      const int column = item.column * kColumns + last_row;
      if (m.bias != nullptr) {
        const T* const bias = m.bias + static_cast<std::int64_t>(group.expert) * m.w_rows + column;
        low += to_float(bias[0]);
        high += to_float(bias[to_high]);
      }
      if constexpr (kGateUp) {
        m.y[static_cast<std::int64_t>(pair) * m.n + column] =
            from_float<T>(activate<T>(low, high, m.activation, m.limit));
      } else {
        outputs[pair * kColumns + last_row] = from_float<T>(low);
        outputs[pair * kColumns + last_row + 8] = from_float<T>(high);
      }
    };
    if constexpr (kTeam == 1) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (lane % 4 * 2 + i < group.rows) finish(lane % 4 * 2 + i, sum[i], sum[2 + i]);
    } else {
      __shared__ float all_sums[2][kTeam][kStreamedRows][kStreamedWeightRows + 4];
      auto& sums = all_sums[turn];
      turn ^= 1;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = lane % 4 * 2 + i;
        if (r >= group.rows) break;
        sums[warp][r][row] = sum[i];
        sums[warp][r][row + 8] = sum[2 + i];
      }
      sync_streamed(multiplying);  // all warps have also read the previous item's sums, which the next item overwrites
      const int r = static_cast<int>(threadIdx.x) / 8;
      if (r < group.rows) {
        float low = 0;
        float high = 0;
#pragma unroll
        for (int i = 0; i < kTeam; ++i) low += sums[i][r][last_row], high += sums[i][r][last_row + 8];
        finish(r, low, high);
      }
    }
  }

  if constexpr (!kGateUp) {
    sync_streamed(multiplying);
    const int tokens = p.pairs / m.top_k;
    for (int i = static_cast<int>(threadIdx.x); i < tokens * kColumns; i += multiplying * kWarp) {
      const int token = i / kColumns;
      const int c = i % kColumns;
      float sum = 0;
      for (int k = 0; k < m.top_k; ++k) {
        const int pair = token * m.top_k + k;
        if (groups.id[pair] >= 0) sum += p.weights[pair] * to_float(outputs[pair * kColumns + c]);
      }
      m.y[static_cast<std::int64_t>(token) * m.n + block * kColumns + c] = from_float<T>(sum);
    }
  }
#endif
}

}  // namespace tessera::cuda::moe
