// Prefill attention on Hopper over a paged cache. It follows the schedule of FlashAttention-3 (Shah et al., 2024,
// arXiv:2407.08608): one warpgroup copies, and two compute. While one computing warpgroup runs matrix products, the
// other computes exponentials.
//
// Three things differ from FlashAttention-3. First, the copy engine (TMA) loads keys and values in boxes of 16 tokens,
// and a warp looks up the page of each box. If threads gathered rows themselves, they would take registers and
// instruction slots from the threads that compute. Second, the two blocks of a cluster work on the same keys, and each
// block copies half of every tile of keys and values to the shared memory of both blocks. If each block copied whole
// tiles, it would read 64 KiB (2 · 128 rows of 256 bytes) from the L2 cache for every 8.4 MFLOP (4 · 128 · 128 · 128
// operations). All multiprocessors together would then need the whole bandwidth of the L2 cache. Third, all work items
// of a block use one ring of slots, so the tiles of the next work item are copied before the current work item ends.
//
// A work item is a tile of query rows of one request for two query heads of one KV head. Each block of the cluster
// computes one of the two heads. If a KV head has an odd number of query heads, the work items of its last head have
// two tiles, one for each block. Both blocks still process the same keys. So a block may compute products for keys that
// none of its rows sees, or even for a tile without rows. These products do not reach the output. A persistent cluster
// processes the work items that the planner assigned to it. Lengths, page tables and work items are read from device
// memory, so that a recorded launch works for every forward that is padded to the same size (the bucket). Blocks may
// read them while the preceding kernel still runs, because no kernel writes them: they are copied to the device before
// the forward. Tiles of keys begin at multiples of kKeys and are taken from the last to the first.
//
// If few query rows see many keys, there are too few tiles for all multiprocessors. In this case the planner may cut
// the keys of a tile into parts. Each part is a work item, and the results of the parts are merged (prefill_parts.cuh).
//
// Short prompts have too few tiles of 128 rows for all multiprocessors, so the kernel takes as long as a single work
// item. To make work items shorter for such prompts, both warpgroups of a block compute the same 64 rows, and each
// takes half of every tile's keys (Share::kKeys).
//
// With heads of 256 elements, shared memory has room only for tiles of 80 keys and for one tile of queries. The results
// are written to the memory of the queries, so the next work item's queries are copied only after the results are
// stored.
//
// Over a cache of E4M3, the copying warpgroup widens the tiles (prefill_widening.cuh). Then each block brings whole
// tiles for itself.
//
// With a window, tiles of keys before the window of a work item's first row are left out (Reach::kWindow). A sink is
// one more score of each row. Its value vector is zero. At the end, the sink's weight is added to the row's sum of
// weights.
//
// The kernel is bound by arithmetic. Each row, head and visible key needs 4 · head_dim operations, and an H200 has 989
// dense TFLOP/s.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "tessera/ops/attention/attention_schedule.h"
#include "tessera/ops/attention/prefill_attention.h"
#include "tessera/ops/cache/cache_type.h"
#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/wgmma.cuh"

namespace tessera::cuda::prefill {

inline constexpr int kCluster = static_cast<int>(kPrefillBlocks);
inline constexpr int kWarpgroups = 2;  // warpgroups that compute
inline constexpr int kThreads = (kWarpgroups + 1) * kWarpgroup;
inline constexpr int kCopyingWarps = 2;   // number of warps that copy; the other two warps of this warpgroup idle
inline constexpr int kWideningWarps = 4;  // over a cache of E4M3, all four warps bring tiles and widen them
inline constexpr int kGroupRows = 64;     // number of query rows of a warpgroup

inline constexpr int kColumns = 64;  // number of 16-bit columns in a row of 128 bytes
inline constexpr int kRowBytes = kColumns * 2;
inline constexpr int kEightRowBytes = 8 * kRowBytes;
inline constexpr int kBoxTokens = 16;  // number of tokens in a box of the copy engine
// To merge their results, the two warpgroups exchange data through shared memory: half of every thread's sums, and the
// running max and sum of weights of the thread's rows. This memory holds the first four float32 of every thread, then
// the next four of every thread, and so on. kJoinStep is the number of bytes of four float32 of every thread.
inline constexpr int kJoinStep = kWarpgroup * 16;

// Says how the warpgroups of a block divide a work item. kRows: each warpgroup has its own rows. kKeys: each warpgroup
// has its own keys of every tile.
enum class Share : bool { kRows, kKeys };

// Says which keys a row sees: all keys up to the row's own position, or only those within a window.
enum class Reach : bool { kAll, kWindow };

// Says what the cache holds. kOfQueries: numbers of the queries' type, which are copied to the slots. kFloat8: E4M3,
// which is widened to the queries' type (prefill_widening.cuh).
enum class Stored : bool { kOfQueries, kFloat8 };

template <int kDim, Share kShare, Reach kReach, Stored kStored = Stored::kOfQueries>
struct Shape {
  static constexpr int kHeadDim = kDim;
  static constexpr bool kWindowed = kReach == Reach::kWindow;
  static constexpr bool kWidens = kStored == Stored::kFloat8;
  static constexpr int kKeys = static_cast<int>(prefill_key_block(kDim));  // keys of a tile
  // In shared memory a tile of keys or values consists of panels of at most 128 columns of the head. A panel consists
  // of groups of 8 tokens. A group consists of matrices of 8 rows by 64 columns, one for every 64 columns of the panel.
  // A box of the copy engine has kBoxTokens tokens of a panel.
  static constexpr int kPanelColumns = kHeadDim < 128 ? kHeadDim : 128;
  static constexpr int kPanelMatrices = kPanelColumns / kColumns;
  static constexpr int kTokenGroupBytes = kPanelMatrices * kEightRowBytes;
  static constexpr int kBoxBytes = kBoxTokens / 8 * kTokenGroupBytes;
  static constexpr int kPanels = kHeadDim / kPanelColumns;
  static constexpr int kPanelBoxes = kKeys / kBoxTokens;
  static constexpr int kBoxes = kPanels * kPanelBoxes;  // number of boxes of a tile, which are in the order of panels
  static constexpr int kPanelBytes = kPanelBoxes * kBoxBytes;
  static constexpr int kTileBytes = kPanels * kPanelBytes;
  static_assert(kBoxes % kCluster == 0, "each block of a cluster copies as many boxes of a tile");
  // Queries are stored as matrices of 64 rows by 64 columns. After the last product has read the queries, the results
  // are written to the same memory.
  static constexpr int kGroupQueryBytes = kGroupRows * kHeadDim * 2;
  static constexpr int kGroupJoinBytes = (kHeadDim / 2 / kWarpgroups / 4 + 1) * kJoinStep;
  static constexpr int kPartChunks = kHeadDim / 2 / 4 + 1;  // float4 per thread: the sums, then both rows' max and sum
  static constexpr bool kJoined = kShare == Share::kKeys;   // both warpgroups compute the same rows
  static constexpr int kRowGroups = kJoined ? 1 : kWarpgroups;
  static constexpr int kRows = kRowGroups * kGroupRows;                     // rows of a work item
  static constexpr int kGroupKeys = kJoined ? kKeys / kWarpgroups : kKeys;  // keys of a tile that a warpgroup takes
  static constexpr int kQueryBytes = kRowGroups * kGroupQueryBytes;
  static constexpr int kJoinBytes = kJoined ? kWarpgroups * kGroupJoinBytes : 0;
  static constexpr int kQuerySlots = kHeadDim <= 128 ? 2 : 1;  // with 2 slots, the next queries are copied early
  // The number of slots of the ring. A slot holds a tile of keys or of values.
  static constexpr int kSlots = kHeadDim == 64 ? 8 : kHeadDim == 256 ? 4 : 5 - (kJoined ? 1 : 0) - (kWidens ? 1 : 0);
  // The number of stages. A stage holds the bytes of a tile of E4M3.
  static constexpr int kStages = kWidens ? 2 : 0;
  static constexpr int kStageBytes = kKeys * kHeadDim;
  static constexpr int kSharedBytes =
      1024 + kQuerySlots * kQueryBytes + kJoinBytes + kSlots * kTileBytes + kStages * kStageBytes;
  // kRegisters is the number of registers of each thread when the block starts. kCopyingRegisters and
  // kComputingRegisters are the numbers that a copying thread and a computing thread have afterwards. With kJoined a
  // block starts with fewer registers, so that it fits on a multiprocessor together with a block of the preceding
  // kernel. The block is then already resident when that kernel ends.
  static constexpr int kRegisters = kJoined ? 144 : 168;
  static constexpr int kCopyingRegisters = kWidens ? (kJoined ? 48 : 56) : kHeadDim <= 128 ? 40 : 24;
  static constexpr int kComputingRegisters = kJoined ? 192 : kWidens ? 224 : kHeadDim <= 128 ? 232 : 240;
  static_assert(kSharedBytes <= 232448 - 1024, "a block may have 232448 bytes; 1024 of them hold the barriers");
  static_assert(kCopyingRegisters + kWarpgroups * kComputingRegisters <= (1 + kWarpgroups) * kRegisters);
};

template <class T>
struct Attention {
  CUtensorMap q;  // [heads, columns / 64, rows, 64], boxes of kGroupRows rows of one head
  // [kv_heads, groups of 8 tokens, columns / 64, 8, 64], boxes of kBoxTokens tokens. Over a cache of E4M3: [kv_heads,
  // tokens, columns], boxes of kBoxTokens tokens.
  CUtensorMap keys;
  CUtensorMap values;                // like `keys`
  T* out;                            // [rows, heads, head_dim]
  const std::int32_t* page_table;    // [requests, max_pages]
  const std::int32_t* query_starts;  // [requests + 1]
  const std::int32_t* kv_lens;       // [requests]
  const std::int32_t* starts;        // [clusters + 1]
  const TileWork* works;
  const float* sinks;    // [heads]; null: no sinks
  CacheScales scales;    // both null unless the cache is of E4M3
  float4* part_results;  // [parts, kCluster, the shape's kPartChunks, computing threads]
  // [parts, kCluster, computing warps]: how many parts of a tile are finished. Only the entries of the tile's part 0
  // are used. All entries are 0 between launches.
  std::int32_t* arrivals;
  int max_pages;
  int page_size;
  int token_groups;  // groups of 8 tokens in the cache; boxes past the last group are filled with zeros
  int rows;
  int heads;
  int group;   // number of query heads per KV head
  int pairs;   // TileUnits::per_tile of prefill_units()
  int window;  // maximum number of keys that a row sees, if the shape is windowed
  float scale_log2;
};

// One work item of a block.
struct Work {
  int request;
  int head;
  int first_row;   // first row of the request in q
  int query_len;   // number of query rows of the request
  int tile_begin;  // number of rows of the request before the block's tile
  int position;    // position of the tile's first row: the number of the request's keys before it
  int unit_begin;  // position of the first row of the tiles of the two blocks that work together
  int seen;        // number of keys that the last row of these two tiles sees, including its own
  int first;       // the first tile of keys
  int end;         // one past the last tile of keys; if end <= first, there is nothing to compute
  int part;        // index of this item's part of the keys; 0 if the keys are not cut
  int parts;
  int first_part;  // index of part 0 in part_results
  __device__ bool is_empty() const { return end <= first; }
  __device__ bool has_last_keys() const { return part + 1 == parts; }
};

template <class S, class T>
__device__ inline Work work_at(const Attention<T>& p, int at, int rank) {
  const TileWork work = p.works[at];
  Work w{};
  w.request = work.request;
  // The two blocks of the cluster usually take two heads of one tile. If a KV head has an odd number of query heads,
  // the two blocks take two tiles of its last head.
  const bool two_tiles = work.unit >= p.pairs;
  const int pairs = p.group / 2;  // pairs of query heads of a KV head
  w.head = two_tiles ? (work.unit - p.pairs + 1) * p.group - 1
                     : work.unit / pairs * p.group + work.unit % pairs * kCluster + rank;
  w.first_row = p.query_starts[w.request];
  // A request whose rows do not fit in the bucket is a defect of the runner. None of its tiles is computed.
  const int end = p.query_starts[w.request + 1];
  w.query_len = end <= p.rows ? end - w.first_row : 0;
  const int begin = work.tile * S::kRows;  // number of rows before both blocks' tiles
  const int before = p.kv_lens[w.request] - w.query_len;
  w.tile_begin = begin + (two_tiles ? rank * S::kRows : 0);
  w.position = before + w.tile_begin;
  w.unit_begin = before + begin;
  w.seen = before + min(w.query_len, begin + (two_tiles ? kCluster : 1) * S::kRows);
  w.first = work.first_block;
  if constexpr (S::kWindowed) w.first = max(w.first, (w.unit_begin - p.window + 1) / S::kKeys);
  w.end = begin < w.query_len ? min(work.end_block, (w.seen + S::kKeys - 1) / S::kKeys) : w.first;
  w.part = work.part;
  w.parts = work.parts;
  w.first_part = work.first_part;
  return w;
}

// A position in a ring of slots: the slot's index, and the phase parity of the slot's mbarriers.
template <int kCount>
struct Place {
  int slot = 0;
  std::uint32_t parity = 0;
  __device__ void advance() {
    if (++slot == kCount) {
      slot = 0;
      parity ^= 1;
    }
  }
};

template <class S>
struct Shared {
  std::uint32_t queries;       // [S::kQuerySlots, S::kQueryBytes]
  std::uint32_t tiles;         // [S::kSlots, S::kTileBytes]
  std::uint32_t joined;        // [S::kJoinBytes]
  SharedBarrier* full;         // [S::kSlots]
  SharedBarrier* empty;        // [S::kSlots], signalled by all blocks of the cluster whose tiles come together
  SharedBarrier* query_full;   // [S::kQuerySlots]
  SharedBarrier* query_empty;  // [S::kQuerySlots]
  std::uint32_t stages;        // [kWideningWarps, S::kStages, S::kStageBytes / kWideningWarps]
  SharedBarrier* arrived;      // [kWideningWarps, S::kStages]
  __device__ std::uint32_t tile(int slot) const { return tiles + static_cast<std::uint32_t>(slot * S::kTileBytes); }
  __device__ std::uint32_t query(int slot) const { return queries + static_cast<std::uint32_t>(slot * S::kQueryBytes); }
};

}  // namespace tessera::cuda::prefill
