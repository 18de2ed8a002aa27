// Computes moe_experts for the rows of a decode step on Hopper. One kernel computes gate and up. The next computes down
// and adds up each token's experts.
//
// The time is bounded by reading the chosen experts, 3 · H · I values each. Each is read once, for any number of rows.
// Bulk copies fill a ring of weights in each block's shared memory. The router's choice is known before gate and up
// begins. The kernel of down therefore requests its first weights as soon as its blocks fit on the multiprocessors, and
// only then waits for the results of gate and up.
//
// Both kernels split the router's choice into groups of up to 8 rows of one expert. In gate and up, an item is a group
// with 8 columns of y (16 weight rows). Each block takes items at a stride of the grid, so multiprocessors have equal
// work for any number of active experts. In down, each block computes 16 columns of y for all groups. Such a block
// computes all experts' results for its columns, so it adds them up itself.
//
// Eight warps share an item, and each multiplies an eighth of k by tensor-core instructions. The weights are the first
// operand, and the group's rows of x are the second. The warps' sums are added in an order that does not depend on the
// rows.
#pragma once

#include "tessera/ops/moe/moe_streams.cuh"

namespace tessera::cuda::moe {

// A position in the ring: the slot, and the number of completed rounds.
struct StreamedPlace {
  int slot = 0;
  std::uint32_t turn = 0;
  __device__ void advance(int slots) {
    if (++slot == slots) {
      slot = 0;
      ++turn;
    }
  }
};

// Synchronises the eight warps that multiply. The ninth, which copies, does not take part.
__device__ inline void sync_streamed() { asm volatile("bar.sync 1, %0;" ::"n"(kStreamedWarps * kWarp) : "memory"); }

// Computes gate and up, or down with the sum. Grid: any for gate and up; n / kStreamedWeightRows for down.
// Preconditions: k is a multiple of 32; n is a multiple of 8 (of kStreamedWeightRows for down); pairs <=
// kStreamedPairs. The kernel of gate and up lets the kernel of down begin only after its own wait, so that the router's
// results are complete when down begins. Dynamic shared memory: the slots, then for down T[pairs, kStreamedWeightRows].
template <class T, bool kGateUp, class Weights>
__global__ void __launch_bounds__(kStreamedThreads, 2) streamed_experts(const Streamed<T> p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ SharedBarrier full[kStreamedSlots], empty[kStreamedSlots];
  __shared__ RowGroups groups;
  __shared__ float all_sums[2][kStreamedWarps][kStreamedRows][kStreamedWeightRows + 4];
  constexpr int kColumns = kGateUp ? kStreamedWeightRows / 2 : kStreamedWeightRows;  // columns of y of an item
  const Matmul<T>& m = p.matmul;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.slots; ++s) {
      full[s].init(1);
      empty[s].init(kStreamedWarps);
    }
    SharedBarrier::make_visible();
  }
  if constexpr (kGateUp) wait_for_previous();
  let_next_begin();
  make_groups(p.ids, p.pairs, m.experts, groups);

  // An item is a group of rows and some columns of y. The blocks of gate and up share all items; a block of down
  // processes the items of its own columns.
  const int across = kGateUp ? m.n / kColumns : 1;
  const int group_step = static_cast<int>(gridDim.x) / across;
  const int column_step = static_cast<int>(gridDim.x) % across;
  struct Item {
    int group;
    int column;  // the item's columns of y, in units of kColumns
  };
  const auto advance = [&](Item& item) {
    if constexpr (kGateUp) {
      item.group += group_step;
      item.column += column_step;
      if (item.column >= across) item.column -= across, ++item.group;
    } else {
      ++item.group;
    }
  };
  const auto block = static_cast<int>(blockIdx.x);
  const Item begin = kGateUp ? Item{block / across, block % across} : Item{0, block};
  const int stages = (m.k + p.stage_columns - 1) / p.stage_columns;
  // The number of chunks in a stage.
  const int chunks =
      Weights::kMostColumns <= kStreamedChunk ? 1 : (min(m.k, p.stage_columns) + kStreamedChunk - 1) / kStreamedChunk;
  const int slot_bytes = Weights::slot_bytes(p.stage_columns);
  const auto columns_of = [&](int stage) { return min(p.stage_columns, m.k - stage * p.stage_columns); };
  // Returns the number of the item's first weight row among all experts' rows. The second eight rows begin `to_high`
  // rows later.
  const auto first_row = [&](const Item& item) {
    return static_cast<std::int64_t>(groups.at(item.group).expert) * m.w_rows + item.column * kColumns;
  };
  const int to_high = kGateUp ? m.n : 8;
  StreamedPlace at;

  if (warp == kStreamedWarps) {
    for (Item item = begin; item.group < groups.count; advance(item)) {
      const std::int64_t low = first_row(item);
      const std::int64_t high = low + to_high;
      Weights::prefetch_scales(m, low, high);
      for (int i = 0; i < stages; ++i, at.advance(p.slots)) {
        if (at.turn > 0) empty[at.slot].wait((at.turn - 1) & 1);
        const int columns = columns_of(i);
        if (lane == 0) full[at.slot].arrive_and_expect(static_cast<std::uint32_t>(Weights::bytes(columns)));
        __syncwarp();
        Weights::copy(m, low, high, i * p.stage_columns, columns, p.pitch, shared + at.slot * slot_bytes,
                      full[at.slot]);
      }
    }
    if constexpr (!kGateUp) wait_for_previous();
    return;
  }

  if constexpr (!kGateUp) wait_for_previous();
  // The columns of x and the scales for the next multiplication are loaded during the current one. These variables are
  // the position of that load.
  Item ahead = begin;
  int ahead_stage = 0;
  int ahead_chunk = 0;
  const int row = lane / 4;
  const int mine = (warp * 4 + lane % 4) * Weights::kColumns;
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
    const int first = ahead_stage * p.stage_columns + ahead_chunk * kStreamedChunk;
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
    advance(ahead);
  };
  T* const outputs = reinterpret_cast<T*>(shared + p.slots * slot_bytes);

  load_next();
  int turn = 0;
  for (Item item = begin; item.group < groups.count; advance(item)) {
    float sum[4] = {};
    [[maybe_unused]] float factors[2];
    if constexpr (Weights::kHasFactors) {
      const std::int64_t mine_of_item = first_row(item) + threadIdx.x % kColumns;
      factors[0] = Weights::factor(m, mine_of_item);
      factors[1] = kGateUp ? Weights::factor(m, mine_of_item + m.n) : 0.0F;
    }
    for (int i = 0; i < stages; ++i, at.advance(p.slots)) {
      const unsigned char* const slot = shared + at.slot * slot_bytes;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        uint4 x[4];
#pragma unroll
        for (int d = 0; d < 4; ++d) x[d] = next[d];
        const typename Weights::Scales scales = next_scales;
        load_next();
        if (chunk == 0) full[at.slot].wait(at.turn & 1);
        const int steps = Weights::steps(columns_of(i) - chunk * kStreamedChunk, warp);
        Weights::multiply(slot, p.pitch, columns_of(i), chunk, x, steps, scales, sum);
      }
      __syncwarp();
      if (lane == 0) empty[at.slot].arrive();
    }

    const RowGroup group = groups.at(item.group);
    auto& sums = all_sums[turn];
    turn ^= 1;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = lane % 4 * 2 + i;
      if (r >= group.rows) break;
      sums[warp][r][row] = sum[i];
      sums[warp][r][row + 8] = sum[2 + i];
    }
    sync_streamed();  // all warps have also read the previous item's sums, which the next item overwrites
    const auto total = [&](int r, int weight_row) {
      float t = 0;
#pragma unroll
      for (int part = 0; part < kStreamedWarps; ++part) t += sums[part][r][weight_row];
      if constexpr (Weights::kHasFactors) t *= kGateUp && weight_row >= kColumns ? factors[1] : factors[0];
      return t;
    };
    if (static_cast<int>(threadIdx.x) < group.rows * kColumns) {
      const int r = static_cast<int>(threadIdx.x) / kColumns;
      const int c = static_cast<int>(threadIdx.x) % kColumns;
      const int pair = groups.order[group.first + r];
      const int first = item.column * kColumns;
      const T* const bias = m.bias == nullptr ? nullptr : m.bias + static_cast<std::int64_t>(group.expert) * m.w_rows;
      float y = total(r, c);
      if (bias != nullptr) y += to_float(bias[first + c]);
      if constexpr (kGateUp) {
        float up = total(r, kColumns + c);
        if (bias != nullptr) up += to_float(bias[m.n + first + c]);
        m.y[static_cast<std::int64_t>(pair) * m.n + first + c] =
            from_float<T>(activate<T>(y, up, m.activation, m.limit));
      } else {
        outputs[pair * kColumns + c] = from_float<T>(y);
      }
    }
  }

  if constexpr (!kGateUp) {
    sync_streamed();
    const int tokens = p.pairs / m.top_k;
    for (int i = static_cast<int>(threadIdx.x); i < tokens * kColumns; i += kStreamedWarps * kWarp) {
      const int token = i / kColumns;
      const int c = i % kColumns;
      float sum = 0;
      for (int k = 0; k < m.top_k; ++k) {
        const int pair = token * m.top_k + k;
        if (groups.id[pair] >= 0) sum += p.weights[pair] * to_float(outputs[pair * kColumns + c]);
      }
      m.y[static_cast<std::int64_t>(token) * m.n + begin.column * kColumns + c] = from_float<T>(sum);
    }
  }
#endif
}

}  // namespace tessera::cuda::moe
