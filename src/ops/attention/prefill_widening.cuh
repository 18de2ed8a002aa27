// The widening warps of a block of prefill attention (prefill_attention.cuh) over a cache of E4M3. They take the place
// of the copying warps (prefill_copies.cuh). The computing warpgroups find tiles of keys and values of the queries'
// type in the ring of slots, as if the copy engine had copied these tiles from a cache of that type.
//
// Each of the four warps of the warpgroup has its own tokens of every tile. It lets the copy engine bring their bytes
// to its stages in shared memory. Then it widens them, which is exact, and writes them to the slot. A warp waits for no
// other widening warp: it has its own stages and barriers, and it arrives by itself at the slot's `full`. While a warp
// widens one stage, the bytes of the next tile are on their way to another.
//
// Each block brings whole tiles, for itself only. This is as much traffic as half of a 16-bit tile.
//
// Warps write a slot as the copy engine would with a swizzle of 128 bytes: in a matrix of 8 rows by 64 columns, the
// 16-byte chunk with index i of row r is the chunk i ^ r. Each thread widens 16 bytes to two neighbouring chunks. With
// heads of 128 elements, the eight threads of a key write to two matrices. The threads of the second matrix write their
// second chunk first, so that eight threads always write to different banks. With heads of 64 elements, the four
// threads of an even row and those of an odd row use different banks anyway.
#pragma once

#include "tessera/ops/attention/prefill_attention.cuh"
#include "tessera/ops/attention/prefill_block.cuh"
#include "tessera/ops/attention/prefill_boxes.cuh"
#include "tessera/ops/cuda/cuda_float8.cuh"

namespace tessera::cuda::prefill {

template <class S, class T>
struct WideningWarp : WorkBoxes<S, T, S::kBoxes / kWideningWarps> {
  static constexpr int kMine = S::kBoxes / kWideningWarps;  // number of boxes of a tile that the warp brings
  static constexpr int kBoxBytes = kBoxTokens * S::kHeadDim;
  static constexpr int kBytes = kMine * kBoxBytes;
  static constexpr int kKeyThreads = S::kHeadDim / 16;           // number of threads that widen a key
  static constexpr int kStepKeys = kWarp / kKeyThreads;          // number of keys that a step widens
  static constexpr int kSteps = kMine * kBoxTokens / kStepKeys;  // number of steps for a stage
  static constexpr int kLeastTiles = 2;  // minimum number of tiles of a work item: one of keys, and one of values
  static_assert(S::kPanels == 1 && S::kBoxes % kWideningWarps == 0);
  static_assert(8 % kStepKeys == 0 && kBytes * kWideningWarps == S::kStageBytes);
  using Boxes = WorkBoxes<S, T, kMine>;
  using Boxes::first_box, Boxes::key_box, Boxes::kv_head, Boxes::lane, Boxes::p, Boxes::shared, Boxes::value_box,
      Boxes::work;

  Place<S::kSlots> at = {};
  Place<S::kStages> stage_at = {};  // the next stage to be filled; if all stages are pending, this one is the oldest
  int pending = 0;                  // number of stages whose bytes are requested and not yet widened

  // Widens the keys and values of the work items begin … end - 1. The first warp also copies the queries. Precondition:
  // look_up(begin) was called.
  __device__ void run(int begin, int end) {
    this->for_each_item(begin, end, [this] { bring_work(); });
#pragma unroll 1
    for (; pending > 0; --pending) {
      widen();
      stage_at.advance();
    }
  }

  // Brings tiles in the same order as CopyingWarp::copy(). When the first warp waits for the slot of the queries, the
  // pending stages belong to the preceding work item, and the item that used the slot comes before that one. So the
  // tiles of the item that used the slot are widened, and the wait ends.
  __device__ void bring_work() {
    static_assert(S::kQuerySlots == 2 && S::kStages <= kLeastTiles);
    if (first_box == 0) this->copy_queries();
    const int last = work.end - 1;
#pragma unroll 1
    for (int i = 0; i < 2 * (work.end - work.first + 1); ++i) {
      const int tile = last - i / 2;
      const bool of_values = i % 2 == 1;  // the values of tile + 1
      if (of_values ? tile < last : tile >= work.first) bring(of_values, tile + (of_values ? 1 : 0));
    }
  }

  // Lets the copy engine bring the warp's part of a tile. If all stages are pending, widens the oldest one before that.
  __device__ void bring(bool of_values, int tile) {
    int groups[kMine];
    Boxes::gather(of_values ? value_box : key_box, groups);
    (of_values ? value_box : key_box) = this->find_box(tile - 1);
    if (pending == S::kStages) {
      widen();
    } else {
      ++pending;
    }
    if (lane == 0) {
      const CUtensorMap& map = of_values ? p.values : p.keys;
      SharedBarrier& arrived = shared.arrived[barrier_of(stage_at.slot)];
      arrived.arrive_and_expect(kBytes);
#pragma unroll
      for (int i = 0; i < kMine; ++i)
        copy_box(stage(stage_at.slot) + static_cast<std::uint32_t>(i * kBoxBytes), map, arrived, 0, groups[i] * 8,
                 kv_head);
    }
    __syncwarp();
    stage_at.advance();
  }

  __device__ int barrier_of(int stage) const { return first_box / kMine * S::kStages + stage; }
  __device__ std::uint32_t stage(int i) const {
    return shared.stages + static_cast<std::uint32_t>(barrier_of(i) * kBytes);
  }

  // Widens the oldest stage to the next slot. When the function returns, the stage is free. Precondition: all stages
  // were pending when the warp last brought a tile, and since then only older stages have been widened.
  __device__ void widen() {
    const std::uint32_t from = stage(stage_at.slot) + static_cast<std::uint32_t>(lane * 16);
    const int key = lane / kKeyThreads;  // index of the key in a step
    const int chunk = lane % kKeyThreads;
    const bool second_first = chunk >= 4;  // whether the thread writes its second chunk first
    const std::uint32_t to =
        shared.tile(at.slot) +
        static_cast<std::uint32_t>(first_box * S::kBoxBytes + chunk / 4 * kEightRowBytes + key * kRowBytes +
                                   ((chunk % 4 * 2 + (second_first ? 1 : 0)) ^ key) * 16);
    shared.arrived[barrier_of(stage_at.slot)].wait(stage_at.parity ^ 1);
    shared.empty[at.slot].wait(at.parity ^ 1);
    uint4 next = load_chunk(from);  // a step loads for the next one, so that no step waits for its load
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint4 x = next;
      if (i + 1 < kSteps) next = load_chunk(from + static_cast<std::uint32_t>((i + 1) * kWarp * 16));
      // `row` is the row of the step's first key in its matrix. It is a multiple of kStepKeys, and `key` is less, so
      // the swizzle by row + key is the swizzle by `key` and then by `row`.
      const int row = i * kStepKeys % 8;
      const std::uint32_t first = (to ^ static_cast<std::uint32_t>(row * 16)) +
                                  static_cast<std::uint32_t>(i * kStepKeys / 8 * S::kTokenGroupBytes + row * kRowBytes);
      widen_eight(first, second_first ? x.z : x.x, second_first ? x.w : x.y);
      widen_eight(first ^ 16, second_first ? x.x : x.z, second_first ? x.y : x.w);
    }
    let_copies_follow();  // products and copies access shared memory through the async proxy
    __syncwarp();
    if (lane == 0) shared.full[at.slot].arrive();
    at.advance();
  }

  // Widens eight elements and stores them at `to`.
  __device__ static void widen_eight(std::uint32_t to, std::uint32_t low, std::uint32_t high) {
    store_chunk(to, {widen_two<T>(low & 0xffffU), widen_two<T>(low >> 16), widen_two<T>(high & 0xffffU),
                     widen_two<T>(high >> 16)});
  }
};

}  // namespace tessera::cuda::prefill
