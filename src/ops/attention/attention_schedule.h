// How attention's library kernels share a forward's work, decided on the host. Pure functions of lengths: no device,
// and no allocation after construction.
//
// A tile is up to `tile_rows` neighbouring query rows of one request. A chunk is a range of one request's keys; rows
// that are cut into several chunks are merged afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// One tile and one query head.
struct TileWork {
  std::int32_t request;
  std::uint16_t tile;
  std::uint16_t head;
};

// Which rows of a forward have tiles.
struct TiledRows {
  std::span<const std::int32_t> query_lens;       // [requests]
  std::span<const std::int32_t> kv_lens;          // [requests]
  std::int64_t least_rows = 1;                    // requests of fewer have no tile
  std::span<const std::int32_t> first_rows = {};  // [requests]: tiles of rows before it alone are left out; empty: none

  // Of request b, the first tile of so many rows, each a part of a token that has `group`; its end where it has none.
  std::int64_t first_tile(std::size_t b, std::int64_t group, std::int64_t tile_rows) const;
  std::int64_t tiles_end(std::size_t b, std::int64_t group, std::int64_t tile_rows) const;
};

// The most tiles that `requests` requests with `tokens` rows in all can have.
inline std::int64_t most_tiles(std::int64_t tokens, std::int64_t requests, std::int64_t tile_rows) {
  return tokens / tile_rows + requests;
}

// Assigns causal tiles to workers that run concurrently, so that all end at about the same time: the largest tile
// first, each to the worker with the least work so far.
class TileSchedule {
 public:
  TileSchedule(std::int64_t max_tokens, std::int64_t max_requests, std::int64_t heads, std::int64_t tile_rows,
               std::int64_t workers);

  std::int64_t workers() const { return static_cast<std::int64_t>(loads_.size()); }
  std::int64_t max_works() const { return static_cast<std::int64_t>(worker_of_.size()); }

  // Writes the works of worker w to works[starts[w]] … works[starts[w + 1] - 1], in the order it should take them.
  // `starts` has workers() + 1 entries, `works` max_works(). Returns the number of works.
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
  std::vector<Load> loads_;              // a heap, the least loaded worker first
  std::vector<std::int32_t> worker_of_;  // scratch: the worker of each work, in the order of assignment
};

// What each block of a launch does. The arrays have the same layout on host and device.
struct BlockPlan {
  std::int32_t* requests;    // [blocks]
  std::int32_t* tiles;       // [blocks]: of its request
  std::int32_t* chunks;      // [blocks]: of its request
  std::int32_t* starts;      // [rows + 1], chunks only: first block of each request; padding has no block
  std::int32_t* chunk_size;  // [1]: keys
  std::uint8_t* valid;       // [blocks]: 0 where the block does nothing
};

// A block for each tile, where a row of the tile is one query head of one token: `group` rows a token. Returns the
// number of tiles.
// Precondition: the requests have at most `blocks` tiles.
std::int64_t plan_tiles(const TiledRows& tokens, std::int64_t group, std::int64_t tile_rows, std::int64_t blocks,
                        const BlockPlan& plan);

struct ChunkLimits {
  std::int64_t kv_heads = 1;
  std::int64_t max_kv_len = 0;       // of a request
  std::int64_t resident_blocks = 0;  // blocks that the device runs concurrently
};

inline constexpr std::int64_t kLeastChunk = 128;  // keys; shorter ones cost more in merging than they save

// A launch for requests of a single row: blocks for each KV head. A function of the number of requests alone, so that
// one recorded launch serves any lengths.
struct ChunkGrid {
  std::int64_t blocks;
  bool split;  // rows may be cut into chunks, which are merged; else block b is request b
};

// Of a decode step. Few requests are cut to fill the device. From as many requests as blocks run at once, the grid has
// a block for each request and as many again as run at once, so that a long row is cut and not left running alone at
// the end. Where there are several requests for each block that runs, the others fill that time, and nothing is cut.
ChunkGrid chunk_grid(std::int64_t requests, const ChunkLimits& limits);
// Of the requests of a single row in a step that has others beside them: always split. Never fewer blocks for more
// requests.
ChunkGrid single_row_grid(std::int64_t requests, const ChunkLimits& limits);

// Plans the requests of a single row in chunks of one size, the smallest with which they fit in the grid; the other
// requests have no block, nor has padding to `rows` requests. `window`: the most keys that a row sees, 0 for all.
// Returns the number of blocks that compute something; the rest of the grid is invalid.
// Precondition: the grid is that of as many requests of a single row, or of more.
std::int64_t plan_chunks(std::span<const std::int32_t> query_lens, std::span<const std::int32_t> kv_lens,
                         std::int64_t rows, const ChunkGrid& grid, std::int64_t window, const BlockPlan& plan);

}  // namespace tessera
