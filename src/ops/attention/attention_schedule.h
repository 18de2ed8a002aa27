// Decides on the host how attention's library kernels share a forward's work. These are pure functions of lengths: they
// use no device and allocate nothing after construction.
//
// A tile is up to `tile_rows` neighbouring query rows of one request. A chunk is a range of one request's keys. Rows
// that are cut into several chunks are merged afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// A work item: one tile and one query head.
struct TileWork {
  std::int32_t request;
  std::uint16_t tile;
  std::uint16_t head;
};

// Selects the rows of a forward that get tiles.
struct TiledRows {
  std::span<const std::int32_t> query_lens;       // [requests]
  std::span<const std::int32_t> kv_lens;          // [requests]
  std::int64_t least_rows = 1;                    // requests with fewer rows have no tile
  std::span<const std::int32_t> first_rows = {};  // [requests]: tiles that lie wholly before this row are left out;
                                                  // empty: no tile is left out

  // Return the begin and the end of request b's tiles, for tiles of `tile_rows` rows and `group` rows a token.
  // first_tile() equals tiles_end() if the request has no tile.
  std::int64_t first_tile(std::size_t b, std::int64_t group, std::int64_t tile_rows) const;
  std::int64_t tiles_end(std::size_t b, std::int64_t group, std::int64_t tile_rows) const;
};

// Returns the greatest number of tiles that `requests` requests with `tokens` rows in total can have.
inline std::int64_t most_tiles(std::int64_t tokens, std::int64_t requests, std::int64_t tile_rows) {
  return tokens / tile_rows + requests;
}

// Assigns causal tiles to workers that run concurrently, so that all workers end at about the same time. It takes the
// largest tile first, and gives each tile to the worker with the least work so far.
class TileSchedule {
 public:
  TileSchedule(std::int64_t max_tokens, std::int64_t max_requests, std::int64_t heads, std::int64_t tile_rows,
               std::int64_t workers);

  std::int64_t workers() const { return static_cast<std::int64_t>(loads_.size()); }
  std::int64_t max_works() const { return static_cast<std::int64_t>(worker_of_.size()); }

  // Writes the work items of worker w to works[starts[w]] … works[starts[w + 1] - 1], in the order in which the worker
  // should take them. `starts` has workers() + 1 entries, `works` max_works(). Returns the number of work items.
  // Precondition: query rows and requests are within the limits of the constructor.
  std::int64_t assign(const TiledRows& rows, std::span<std::int32_t> starts, std::span<TileWork> works);

 private:
  struct Tile {
    std::int64_t cost;
    std::int32_t request;
    std::uint16_t index;
  };
  struct Load {
    std::int64_t cost;
    std::int32_t worker;
  };
  std::int32_t give(std::int64_t cost);  // assigns to the least loaded worker and returns it

  std::int64_t heads_;
  std::int64_t tile_rows_;
  std::vector<Tile> tiles_;              // scratch
  std::vector<Load> loads_;              // a heap with the least loaded worker first
  std::vector<std::int32_t> worker_of_;  // scratch: the worker of each work item, in the order of assignment
};

// The work of each block of a launch. The arrays have the same layout on host and device.
struct BlockPlan {
  std::int32_t* requests;    // [blocks]
  std::int32_t* tiles;       // [blocks]: index of the tile within its request
  std::int32_t* chunks;      // [blocks]: index of the chunk within its request
  std::int32_t* starts;      // [rows + 1], chunks only: first block of each request; padding requests have no block
  std::int32_t* chunk_size;  // [1]: keys in a chunk
  std::uint8_t* valid;       // [blocks]: 0 if the block does nothing
};

// Plans one block for each tile. A row of a tile is one query head of one token, so a token has `group` rows. Returns
// the number of tiles. Precondition: the requests have at most `blocks` tiles.
std::int64_t plan_tiles(const TiledRows& tokens, std::int64_t group, std::int64_t tile_rows, std::int64_t blocks,
                        const BlockPlan& plan);

struct ChunkLimits {
  std::int64_t kv_heads = 1;
  std::int64_t max_kv_len = 0;       // upper limit of the keys of one request
  std::int64_t resident_blocks = 0;  // blocks that the device runs concurrently
};

inline constexpr std::int64_t kLeastChunk = 128;  // in keys; shorter chunks cost more in merging than they save

// The launch for requests of a single row: `blocks` blocks for each KV head. It is a function of the number of requests
// alone, so that one recorded launch works for any lengths.
struct ChunkGrid {
  std::int64_t blocks;
  bool split;  // rows may be cut into chunks, which are merged; otherwise block b is request b
};

// Returns the grid of a decode step. Few requests are cut into chunks to fill the device. With at least as many
// requests as resident blocks, the grid has a block for each request plus one for each resident block, so that a long
// row is cut and does not run alone at the end. With several requests for each resident block nothing is cut, because
// the other requests keep the device busy.
ChunkGrid chunk_grid(std::int64_t requests, const ChunkLimits& limits);
// Returns the grid for the requests of a single row in a step that also has longer requests. It is always split. More
// requests never give fewer blocks.
ChunkGrid single_row_grid(std::int64_t requests, const ChunkLimits& limits);

// Plans the requests of a single row in chunks of one size, which is the smallest size that fits in the grid. Requests
// with more rows have no block, and neither has padding up to `rows` requests. `window` limits the keys that a row
// sees; 0: it sees all keys. Returns the number of blocks that compute something; the rest of the grid is marked
// invalid. Precondition: the grid was made for at least this number of single-row requests.
std::int64_t plan_chunks(std::span<const std::int32_t> query_lens, std::span<const std::int32_t> kv_lens,
                         std::int64_t rows, const ChunkGrid& grid, std::int64_t window, const BlockPlan& plan);

}  // namespace tessera
