// Divides a forward's work among the blocks of those attention kernels that read work lists. The functions run on the
// host and depend only on lengths. They use no device, and allocate nothing after construction.
//
// A tile is up to `tile_rows` neighbouring query rows of one request. A chunk is a range of one request's keys. If the
// keys of a row are cut into several chunks, the chunks' results are merged afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera {

// The units into which the work of a request's tiles is divided, for example one unit for each query head. One worker
// processes a whole unit, unless the unit's keys are cut into parts (TileWork).
struct TileUnits {
  std::int64_t per_tile = 0;  // number of units of each tile
  std::int64_t per_pair = 0;  // number of units of each pair: a tile of even index and the tile after it, if any
};

// A work item: one unit of a tile or of a pair of tiles. It covers all keys that the tiles see, or a part of these
// keys.
struct TileWork {
  std::int32_t request;
  std::uint16_t tile;  // for a pair, its tile of even index
  std::uint16_t unit;  // index of the unit; the units of pairs follow those of single tiles
  // The item's keys, in blocks of `key_block` keys (TileSchedule): first_block … end_block - 1. The range may extend
  // past the last key that the tile sees. Kernels ignore the excess.
  std::int32_t first_block = 0;
  std::int32_t end_block = kAllBlocks;
  // The unit's keys are cut into `parts` parts, whose results are merged. This item is the part with index `part`. The
  // results of part 0 have the index `first_part` in the array of all partial results. The results of the other parts
  // follow.
  std::uint16_t part = 0;
  std::uint16_t parts = 1;
  std::int32_t first_part = 0;

  static constexpr std::int32_t kAllBlocks = std::numeric_limits<std::int32_t>::max();
};

// Selects the rows of a forward that are divided into tiles.
struct TiledRows {
  std::span<const std::int32_t> query_lens;       // [requests]
  std::span<const std::int32_t> kv_lens;          // [requests]
  std::int64_t least_rows = 1;                    // requests with fewer rows have no tile
  std::span<const std::int32_t> first_rows = {};  // [requests]: tiles that lie wholly before this row are left out;
                                                  // empty: no tile is left out

  // first_tile() returns the index of request b's first tile, and tiles_end() returns one past the index of its last
  // tile. A tile has `tile_rows` rows, and a token has `group` rows. Both results are equal if the request has no tile.
  std::int64_t first_tile(std::size_t b, std::int64_t group, std::int64_t tile_rows) const;
  std::int64_t tiles_end(std::size_t b, std::int64_t group, std::int64_t tile_rows) const;

  // Returns whether both select the same tiles of the same requests. A token has one row.
  bool same_tiles(const TiledRows& other, std::int64_t tile_rows) const;
};

// Returns the maximum number of tiles that `requests` requests with `tokens` rows in total can have.
inline std::int64_t most_tiles(std::int64_t tokens, std::int64_t requests, std::int64_t tile_rows) {
  return tokens / tile_rows + requests;
}

// Workers by the cost of the work that they have. Finds the least loaded worker through a tree in which each node holds
// the smaller of its two children, so that giving work takes one comparison a level and no branch.
class WorkerLoads {
 public:
  explicit WorkerLoads(std::int64_t workers);

  std::int64_t workers() const { return workers_; }
  void clear();
  // Adds `cost` to the load of the least loaded worker, the first of several, and returns that worker. Precondition: no
  // load reaches 2^47.
  std::int32_t give(std::int64_t cost);
  std::int64_t most() const;  // the largest load

 private:
  // A load and its worker as one number, whose order is that of the loads, and among equal loads that of the workers.
  using Key = std::uint64_t;
  static constexpr int kWorkerBits = 16;

  std::int64_t workers_;
  std::size_t leaves_;     // the power of two from `workers` on
  std::vector<Key> tree_;  // [2 · leaves]: node 1 is the root, node leaves + w is worker w
};

// Assigns the units of causal tiles to workers that run concurrently, so that all workers end at about the same time.
// The units of the largest tile are assigned first. Each unit goes to the worker with the least work so far.
//
// A forward of few query rows over many keys has few but large tiles. Some workers then have nothing to do, or one unit
// more than others. If this costs more time than merging partial results, the schedule lines up the keys of all units
// in one sequence, and gives every worker an equal range of this sequence. A unit that extends past the end of a range
// is cut there into parts.
class TileSchedule {
 public:
  // If `key_block` is not 0, the keys of tiles may be cut at multiples of `key_block` keys. If `window` is not 0, a row
  // sees at most `window` keys, and no tile is cut.
  TileSchedule(std::int64_t max_tokens, std::int64_t max_requests, const TileUnits& units, std::int64_t tile_rows,
               std::int64_t workers, std::int64_t key_block = 0, std::int64_t window = 0);

  std::int64_t workers() const { return loads_.workers(); }
  std::int64_t tile_rows() const { return tile_rows_; }
  std::int64_t max_works() const { return static_cast<std::int64_t>(worker_of_.size()) + (cuts_ ? workers() - 1 : 0); }
  // Returns the maximum number of parts of all cut tiles together. A worker's range contains at most two of these
  // parts, one at its beginning and one at its end.
  std::int64_t max_parts() const { return cuts_ ? 2 * workers() : 0; }

  // Writes the work items of worker w to works[starts[w]] … works[starts[w + 1] - 1], in the order in which the worker
  // should take them. `starts` has workers() + 1 entries, and `works` has max_works() entries. Returns the number of
  // work items. Precondition: query rows and requests are within the limits of the constructor.
  std::int64_t assign(const TiledRows& rows, std::span<std::int32_t> starts, std::span<TileWork> works);

 private:
  struct Tile {
    std::int64_t keys;  // number of keys that the tile's rows see; with a window at most window + tile_rows
    std::int32_t request;
    std::uint16_t index;
    bool ends_pair;  // the tile is the later tile of its pair, or alone in its pair
  };
  // Fills tiles_ with the tiles of the forward, the largest first.
  void find_tiles(const TiledRows& rows);
  // Chooses a worker for each unit, for the case that no tile is cut. Counts the units of worker w in starts[w + 1].
  void choose_workers(std::span<std::int32_t> starts);
  // Returns whether cutting tiles saves more time than merging the parts takes. Compares the work of the most loaded
  // worker after choose_workers(), which assigned whole tiles, with the mean work of all workers.
  bool pays_to_cut() const;
  std::int64_t write_whole(std::span<std::int32_t> starts, std::span<TileWork> works) const;
  std::int64_t write_cut(std::span<std::int32_t> starts, std::span<TileWork> works) const;
  // Returns the number of units that are assigned together with `tile`: the tile's own units and, if it is the last
  // tile of its pair, the pair's units.
  std::int64_t units_of(const Tile& tile) const { return units_.per_tile + (tile.ends_pair ? units_.per_pair : 0); }
  // Returns the work item of a unit, with all keys.
  TileWork work_of(const Tile& tile, std::int64_t unit) const;
  std::int64_t cost_of(const Tile& tile) const;
  std::int64_t blocks_of(const Tile& tile) const;

  TileUnits units_;
  std::int64_t tile_rows_;
  std::int64_t key_block_;
  std::int64_t window_;
  bool cuts_;
  std::vector<Tile> tiles_;  // scratch: the tiles of the forward
  WorkerLoads loads_;
  std::vector<std::int32_t> worker_of_;  // scratch: the worker of each work item, in the order of assignment
};

// The work of each block of a launch. The arrays have the same layout on host and device.
struct BlockPlan {
  std::int32_t* requests;  // [blocks]
  std::int32_t* tiles;     // [blocks]: index of the tile within its request
  std::int32_t* chunks;    // [blocks]: index of the chunk within its request
  // [requests with padding + 1]: each request's first block. Only plan_chunks() writes it. A request has blocks only if
  // it is not padding and has exactly one row. The entry of any other request equals the entry of the next request.
  std::int32_t* starts;
  std::int32_t* chunk_size;  // [1]: number of keys in a chunk
  std::uint8_t* valid;       // [blocks]: 0 if the block does nothing
};

// Plans one block for each tile. A row of a tile is one query head of one token, so a token has `group` rows. Returns
// the number of tiles. Precondition: the requests have at most `blocks` tiles.
std::int64_t plan_tiles(const TiledRows& tokens, std::int64_t group, std::int64_t tile_rows, std::int64_t blocks,
                        const BlockPlan& plan);

struct ChunkLimits {
  std::int64_t kv_heads = 1;
  std::int64_t max_kv_len = 0;       // upper limit of the number of keys of one request
  std::int64_t resident_blocks = 0;  // number of blocks that the device runs concurrently
};

inline constexpr std::int64_t kLeastChunk = 128;  // in keys; shorter chunks cost more in merging than they save

// The grid of the launch for requests of a single row: `blocks` blocks for each KV head. It depends only on the number
// of requests, so that one recorded launch works for any lengths.
struct ChunkGrid {
  std::int64_t blocks;
  bool split;  // true: a row's keys may be cut into chunks; false: block b processes all keys of request b
};

// Returns the grid of a decode step. Let R be the number of resident blocks per KV head. With fewer than R requests,
// keys are cut into chunks to fill the device. With R or more requests, the grid has one block for each request and R
// more. The R additional blocks take chunks of long rows, which would otherwise run alone at the end. With 3 R or more
// requests no row is cut, because the other requests keep the device busy.
ChunkGrid chunk_grid(std::int64_t requests, const ChunkLimits& limits);
// Returns the grid for the requests of a single row in an extend step, which may also have requests of several rows.
// `split` is always true. The number of blocks never falls as the number of requests grows.
ChunkGrid single_row_grid(std::int64_t requests, const ChunkLimits& limits);

// Divides the keys of single-row requests into chunks of one size. This size is the smallest with which all chunks fit
// in the grid. Requests with more rows have no block. Padding requests, which fill the batch up to `rows` requests,
// have no block either. If `window` is not 0, a row sees at most `window` keys. Returns the number of blocks that
// compute something. The other blocks of the grid are marked as invalid. Precondition: the grid was made for at least
// as many single-row requests as the batch has.
std::int64_t plan_chunks(std::span<const std::int32_t> query_lens, std::span<const std::int32_t> kv_lens,
                         std::int64_t rows, const ChunkGrid& grid, std::int64_t window, const BlockPlan& plan);

}  // namespace tessera
