// moe_experts for the rows of a decode step on Hopper: gate and up, then down and the sum over a token's experts.
//
// The time is bounded by the bytes of the chosen experts, 3 · H · I values each, which are read once whatever the
// number of their rows. A block keeps a ring of weights in shared memory that the copy engine fills. The router's
// choice is known when gate and up begins. So down requests its first weights as soon as its blocks fit on the
// multiprocessors, before it waits for the results of gate and up.
//
// Both kernels make a list of row groups from the router's choice; a group has up to 8 rows of one expert. Gate and up
// has an item for each group and 8 columns of y (16 weight rows). Each block takes items at a stride of the grid, so
// that multiprocessors have equal work however many experts are active. Down has a block for each 16 columns, which
// goes through all groups: it has all terms of its columns and adds them up itself.
//
// Eight warps share an item; each multiplies an eighth of k by tensor-core instructions. The weights are the first
// matrix, the group's rows of x the second. The warps' sums are added in an order that does not depend on the rows.
#pragma once

#include "tessera/ops/cuda/bulk_copy.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"
#include "tessera/ops/moe/moe_mxfp4.cuh"
#include "tessera/ops/moe/moe_row_groups.cuh"

namespace tessera::cuda::moe {

inline constexpr int kStreamedWeightRows = 16;  // weight rows of an item
inline constexpr int kStreamedChunk = 1024;     // columns of a chunk; a thread has 32 of them
inline constexpr int kStreamedSlots = 8;        // most stages in shared memory

// Bytes of a row in shared memory: 64 more than a multiple of 128. Eight threads read 16 bytes each of two rows at a
// time, and so use all banks.
inline constexpr int streamed_row_bytes(int bytes) { return (bytes + 63) / 128 * 128 + 64; }

template <class T>
struct Streamed {
  Matmul<T> matmul;         // the y of down is [tokens, n]
  const std::int32_t* ids;  // [pairs]
  const float* weights;     // [pairs]
  int pairs;
  int stage_columns;
  int slots;
};

// How the weights of an item lie in memory and how they are multiplied: 16-bit numbers, in stages of one chunk. Threads
// of a quad take neighbouring 16-byte pieces of a row. An instruction's operands may name the columns of k in any
// order, as long as both matrices use the same order.
template <class T>
struct PlainStream {
  static constexpr int kColumns = 8;                   // neighbouring columns of a thread
  static constexpr int kMostColumns = kStreamedChunk;  // columns of a stage

  // Stages have equal lengths, so that the last one is not a short one with a few columns.
  static int stage_columns(int k) {
    const int stages = (k + kMostColumns - 1) / kMostColumns;
    return ((k + stages - 1) / stages + 63) / 64 * 64;
  }
  __host__ __device__ static int row_bytes(int columns) { return streamed_row_bytes(columns * 2); }
  __host__ __device__ static int slot_bytes(int columns) { return kStreamedWeightRows * row_bytes(columns); }
  __device__ static int bytes(int columns) { return kStreamedWeightRows * columns * 2; }
  // Distance between a thread's four groups of 8 columns in a chunk.
  static constexpr int kColumnStep = kStreamedWarps * 4 * kColumns;
  // Returns how many of its four groups of 8 columns a warp has in a chunk of `columns` columns.
  __device__ static int steps(int columns, int warp) {
    return min(4, (columns - warp * 4 * kColumns + kColumnStep - 1) / kColumnStep);
  }

  // Copies a stage of an item's weights. One warp calls it. `low` and `high` are the places of the item's first and
  // second eight weight rows in the stack.
  __device__ static void copy(const Matmul<T>& m, std::int64_t low, std::int64_t high, int column, int columns,
                              int stage_columns, unsigned char* to, SharedBarrier& full) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane >= kStreamedWeightRows) return;
    const std::int64_t row = (lane < 8 ? low : high) + lane % 8;
    bulk_copy(to + lane * row_bytes(stage_columns), m.w + row * m.k + column, static_cast<std::uint32_t>(columns * 2),
              full);
  }

  // sum += this thread's share of a chunk. `steps` is how many of its four groups of 8 columns lie inside x.
  __device__ static void multiply(const unsigned char* slot, int stage_columns, int chunk, const uint4 (&x)[4],
                                  int steps, float (&sum)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int pitch = row_bytes(stage_columns);
    const unsigned char* const from = slot + lane / 4 * pitch + chunk * kStreamedChunk * 2 + (warp * 4 + lane % 4) * 16;
    const auto of = [&](int d, int half) {
      return *reinterpret_cast<const uint4*>(from + half * 8 * pitch + d * kStreamedWarps * 64);
    };
    const auto add = [&](const uint4& low, const uint4& high, const uint4& columns) {
      multiply_tile<T>(sum, {low.x, high.x, low.y, high.y}, columns.x, columns.y);
      multiply_tile<T>(sum, {low.z, high.z, low.w, high.w}, columns.z, columns.w);
    };
    if (steps == 4) {
      uint4 w[4][2];
#pragma unroll
      for (int d = 0; d < 4; ++d)
#pragma unroll
        for (int half = 0; half < 2; ++half) w[d][half] = of(d, half);
#pragma unroll
      for (int d = 0; d < 4; ++d) add(w[d][0], w[d][1], x[d]);
      return;
    }
#pragma unroll
    for (int d = 0; d < 3; ++d)
      if (d < steps) add(of(d, 0), of(d, 1), x[d]);
  }
};

// mxfp4: a stage holds all of k, and the scale factors follow the rows. A thread's 32 columns of a chunk are one block.
template <class T>
struct PackedStream {
  static constexpr int kColumns = kPackedBlock;
  static constexpr int kMostColumns = 4 * kStreamedChunk;

  static int stage_columns(int k) { return k; }
  __host__ __device__ static int row_bytes(int columns) { return streamed_row_bytes(columns / 2); }
  __host__ __device__ static int slot_bytes(int columns) {
    return kStreamedWeightRows * (row_bytes(columns) + columns / kPackedBlock);
  }
  __device__ static int bytes(int columns) { return kStreamedWeightRows * (columns / 2 + columns / kPackedBlock); }
  static constexpr int kColumnStep = 8;
  __device__ static int steps(int columns, int warp) { return warp * 4 * kColumns < columns ? 4 : 0; }

  // k is a multiple of 64, so the scale factors of eight rows are a multiple of 16 bytes.
  __device__ static void copy(const Matmul<T>& m, std::int64_t low, std::int64_t high, int, int columns, int,
                              unsigned char* to, SharedBarrier& full) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int pitch = row_bytes(columns);
    const int blocks = columns / kPackedBlock;
    if (lane < kStreamedWeightRows) {
      const std::int64_t row = (lane < 8 ? low : high) + lane % 8;
      bulk_copy(to + lane * pitch, m.packed + row * (columns / 2), static_cast<std::uint32_t>(columns / 2), full);
    } else if (lane < kStreamedWeightRows + 2) {
      const int half = lane - kStreamedWeightRows;
      bulk_copy(to + kStreamedWeightRows * pitch + half * 8 * blocks, m.scales + (half == 0 ? low : high) * blocks,
                static_cast<std::uint32_t>(8 * blocks), full);
    }
  }

  __device__ static void multiply(const unsigned char* slot, int columns, int chunk, const uint4 (&x)[4], int steps,
                                  float (&sum)[4]) {
    if (steps == 0) return;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int pitch = row_bytes(columns);
    const int blocks = columns / kPackedBlock;
    const int row = lane / 4;
    const int block = min(chunk * (kStreamedChunk / kPackedBlock) + warp * 4 + lane % 4, blocks - 1);
    const uint4 low = *reinterpret_cast<const uint4*>(slot + row * pitch + block * 16);
    const uint4 high = *reinterpret_cast<const uint4*>(slot + (row + 8) * pitch + block * 16);
    const unsigned char* const scales = slot + kStreamedWeightRows * pitch + row * blocks + block;
    const PackedFactor low_factor(scales[0]);
    const PackedFactor high_factor(scales[8 * blocks]);
    const std::uint32_t words[2][4] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t pairs[4];
      std::uint32_t w[2][4];
      pair_up(x[i], pairs);
      unpack_word(words[0][i], low_factor, w[0]);
      unpack_word(words[1][i], high_factor, w[1]);
      multiply_tile<T>(sum, {w[0][0], w[1][0], w[0][1], w[1][1]}, pairs[0], pairs[1]);
      multiply_tile<T>(sum, {w[0][2], w[1][2], w[0][3], w[1][3]}, pairs[2], pairs[3]);
    }
  }
};

// The position of a walk through the ring: its slot, and how often it has gone round.
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

// Barrier of the warps that multiply, without the ninth.
__device__ inline void sync_streamed() { asm volatile("bar.sync 1, %0;" ::"n"(kStreamedWarps * kWarp) : "memory"); }

// Grid: any for gate and up; n / kStreamedWeightRows for down. Preconditions: k is a multiple of 32; n is a multiple of
// 8 (of kStreamedWeightRows for down); pairs <= kStreamedPairs. Gate and up lets down begin only after its own wait, so
// that the router's results are complete when down begins. Dynamic shared memory: the slots, then for down T[pairs,
// kStreamedWeightRows].
template <class T, bool kGateUp, template <class> class Stream>
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

  // An item is a group of rows and some columns of y. Gate and up goes through all items, down through those of its
  // columns.
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
  using Weights = Stream<T>;
  const int stages = (m.k + p.stage_columns - 1) / p.stage_columns;
  const int chunks = (min(m.k, p.stage_columns) + kStreamedChunk - 1) / kStreamedChunk;  // chunks of a stage
  const int slot_bytes = Weights::slot_bytes(p.stage_columns);
  const auto columns_of = [&](int stage) { return min(p.stage_columns, m.k - stage * p.stage_columns); };
  StreamedPlace at;

  if (warp == kStreamedWarps) {
    for (Item item = begin; item.group < groups.count; advance(item)) {
      const std::int64_t low =
          static_cast<std::int64_t>(groups.at(item.group).expert) * m.w_rows + item.column * kColumns;
      const std::int64_t high = low + (kGateUp ? m.n : 8);
      for (int i = 0; i < stages; ++i, at.advance(p.slots)) {
        if (at.turn > 0) empty[at.slot].wait((at.turn - 1) & 1);
        const int columns = columns_of(i);
        if (lane == 0) full[at.slot].arrive_and_expect(static_cast<std::uint32_t>(Weights::bytes(columns)));
        __syncwarp();
        Weights::copy(m, low, high, i * p.stage_columns, columns, p.stage_columns, shared + at.slot * slot_bytes,
                      full[at.slot]);
      }
    }
    if constexpr (!kGateUp) wait_for_previous();
    return;
  }

  if constexpr (!kGateUp) wait_for_previous();
  // The columns of x that this thread multiplies next are loaded while it multiplies others.
  Item ahead = begin;
  int ahead_stage = 0;
  int ahead_chunk = 0;
  const int row = lane / 4;
  const int mine = (warp * 4 + lane % 4) * Weights::kColumns;
  const T* of_row = nullptr;
  uint4 next[4];
  const auto load_next = [&] {
    if (ahead.group >= groups.count) return;
    if (ahead_stage == 0 && ahead_chunk == 0) {
      const RowGroup group = groups.at(ahead.group);
      const int pair = groups.order[group.first + min(row, group.rows - 1)];
      of_row = m.x + static_cast<std::int64_t>(kGateUp ? pair / m.top_k : pair) * m.k;
    }
    const int end = ahead_stage * p.stage_columns + columns_of(ahead_stage);
    const int first = ahead_stage * p.stage_columns + ahead_chunk * kStreamedChunk + mine;
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      const int c = first + d * Weights::kColumnStep;
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
    for (int i = 0; i < stages; ++i, at.advance(p.slots)) {
      const unsigned char* const slot = shared + at.slot * slot_bytes;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        uint4 x[4];
#pragma unroll
        for (int d = 0; d < 4; ++d) x[d] = next[d];
        load_next();
        if (chunk == 0) full[at.slot].wait(at.turn & 1);
        const int steps = Weights::steps(columns_of(i) - chunk * kStreamedChunk, warp);
        Weights::multiply(slot, p.stage_columns, chunk, x, steps, sum);
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
    sync_streamed();  // all have read the sums of the item before the last, whose place the next item's sums take
    const auto total = [&](int r, int weight_row) {
      float t = 0;
#pragma unroll
      for (int part = 0; part < kStreamedWarps; ++part) t += sums[part][r][weight_row];
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
