#include "tessera/ops/attention/attention_schedule.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "tessera/base/ceil_div.h"

namespace tessera {
namespace {

std::int64_t keys_seen(std::int64_t kv_len, std::int64_t window) {
  return window > 0 ? std::min(kv_len, window) : kv_len;
}

}  // namespace

std::int64_t TiledRows::first_tile(std::size_t b, std::int64_t group, std::int64_t tile_rows) const {
  if (first_rows.empty()) return 0;
  if (first_rows[b] == query_lens[b]) return tiles_end(b, group, tile_rows);
  return first_rows[b] * group / tile_rows;
}

std::int64_t TiledRows::tiles_end(std::size_t b, std::int64_t group, std::int64_t tile_rows) const {
  return query_lens[b] < least_rows ? 0 : ceil_div(query_lens[b] * group, tile_rows);
}

bool TiledRows::same_tiles(const TiledRows& other, std::int64_t tile_rows) const {
  for (std::size_t b = 0; b < query_lens.size(); ++b) {
    const std::int64_t end = tiles_end(b, 1, tile_rows);
    if (end != other.tiles_end(b, 1, tile_rows)) return false;
    if (end > 0 && first_tile(b, 1, tile_rows) != other.first_tile(b, 1, tile_rows)) return false;
  }
  return true;
}

WorkerLoads::WorkerLoads(std::int64_t workers)
    : workers_(workers), leaves_(std::bit_ceil(static_cast<std::size_t>(workers))), tree_(2 * leaves_) {
  clear();
}

void WorkerLoads::clear() {
  std::ranges::fill(tree_, std::numeric_limits<Key>::max());
  for (std::size_t w = 0; w < static_cast<std::size_t>(workers_); ++w) tree_[leaves_ + w] = w;
  for (std::size_t node = leaves_ - 1; node > 0; --node) tree_[node] = std::min(tree_[2 * node], tree_[2 * node + 1]);
}

std::int32_t WorkerLoads::give(std::int64_t cost) {
  const auto worker = tree_[1] & ((Key{1} << kWorkerBits) - 1);
  Key least = tree_[1] + (static_cast<Key>(cost) << kWorkerBits);
  for (std::size_t node = leaves_ + worker; node > 1; node /= 2) {
    tree_[node] = least;
    least = std::min(least, tree_[node ^ 1]);
  }
  tree_[1] = least;
  return static_cast<std::int32_t>(worker);
}

std::int64_t WorkerLoads::most() const {
  const std::span<const Key> leaves(tree_.data() + leaves_, static_cast<std::size_t>(workers_));
  return static_cast<std::int64_t>(std::ranges::max(leaves) >> kWorkerBits);
}

TileSchedule::TileSchedule(std::int64_t max_tokens, std::int64_t max_requests, const TileUnits& units,
                           std::int64_t tile_rows, std::int64_t workers, std::int64_t key_block, std::int64_t window)
    : units_(units),
      tile_rows_(tile_rows),
      key_block_(key_block),
      window_(window),
      cuts_(key_block > 0 && window == 0),
      loads_(workers) {
  const auto most = static_cast<std::size_t>(most_tiles(max_tokens, max_requests, tile_rows));
  tiles_.reserve(most);
  worker_of_.resize(most * static_cast<std::size_t>(units.per_tile + units.per_pair));
}

std::int64_t TileSchedule::assign(const TiledRows& rows, std::span<std::int32_t> starts, std::span<TileWork> works) {
  find_tiles(rows);
  choose_workers(starts);
  return pays_to_cut() ? write_cut(starts, works) : write_whole(starts, works);
}

void TileSchedule::find_tiles(const TiledRows& rows) {
  tiles_.clear();
  for (std::size_t b = 0; b < rows.query_lens.size(); ++b) {
    const std::int64_t count = rows.query_lens[b];
    const std::int64_t tiles_end = rows.tiles_end(b, 1, tile_rows_);
    for (std::int64_t tile = rows.first_tile(b, 1, tile_rows_); tile < tiles_end; ++tile) {
      const std::int64_t keys = rows.kv_lens[b] - count + std::min(count, (tile + 1) * tile_rows_);
      const std::int64_t seen = window_ > 0 ? std::min(keys, window_ + tile_rows_) : keys;
      tiles_.push_back({seen, static_cast<std::int32_t>(b), static_cast<std::uint16_t>(tile),
                        tile % 2 == 1 || tile + 1 == tiles_end});
    }
  }
  std::sort(tiles_.begin(), tiles_.end(), [](const Tile& a, const Tile& b) {
    if (a.keys != b.keys) return a.keys > b.keys;
    return a.request != b.request ? a.request < b.request : a.index > b.index;
  });
}

void TileSchedule::choose_workers(std::span<std::int32_t> starts) {
  loads_.clear();
  std::fill(starts.begin(), starts.end(), 0);
  std::size_t count = 0;
  for (const Tile& tile : tiles_)
    for (std::int64_t unit = 0; unit < units_of(tile); ++unit) {
      worker_of_[count] = loads_.give(cost_of(tile));
      ++starts[static_cast<std::size_t>(worker_of_[count]) + 1];
      ++count;
    }
}

bool TileSchedule::pays_to_cut() const {
  if (!cuts_) return false;
  constexpr std::int64_t kLeastGain = 12;  // in blocks of keys; writing and merging parts costs about this much
  std::int64_t total = 0;
  for (const Tile& tile : tiles_) total += cost_of(tile) * units_of(tile);
  const std::int64_t last = loads_.most();
  const std::int64_t equal = total / workers();
  return last - equal >= kLeastGain * key_block_ && last * 8 > equal * 9;
}

std::int64_t TileSchedule::write_whole(std::span<std::int32_t> starts, std::span<TileWork> works) const {
  for (std::size_t w = 1; w < starts.size(); ++w) starts[w] += starts[w - 1];

  // Writes the work items of each worker. starts[w] advances with every item of worker w, so at the end it holds the
  // start of worker w + 1. Afterwards all entries are moved up by one index.
  std::size_t work = 0;
  for (const Tile& tile : tiles_)
    for (std::int64_t unit = 0; unit < units_of(tile); ++unit) {
      std::int32_t& next = starts[static_cast<std::size_t>(worker_of_[work++])];
      works[static_cast<std::size_t>(next++)] = work_of(tile, unit);
    }
  std::copy_backward(starts.begin(), starts.end() - 1, starts.end());
  starts[0] = 0;
  return static_cast<std::int64_t>(work);
}

TileWork TileSchedule::work_of(const Tile& tile, std::int64_t unit) const {
  const bool pair = unit >= units_.per_tile;
  return {.request = tile.request,
          .tile = static_cast<std::uint16_t>(pair ? tile.index & ~1 : tile.index),
          .unit = static_cast<std::uint16_t>(unit)};
}

// Processing a tile takes a constant time, counted as 2 · tile_rows_ keys, in addition to the time for its keys.
std::int64_t TileSchedule::cost_of(const Tile& tile) const { return tile.keys + 2 * tile_rows_; }

std::int64_t TileSchedule::blocks_of(const Tile& tile) const { return ceil_div(tile.keys, key_block_); }

std::int64_t TileSchedule::write_cut(std::span<std::int32_t> starts, std::span<TileWork> works) const {
  constexpr std::int64_t kLeastPart = 4;  // in blocks of keys
  std::int64_t total = 0;
  for (const Tile& tile : tiles_) total += blocks_of(tile) * units_of(tile);
  // No part may have fewer than kLeastPart blocks. A range may therefore end too early, by at most kLeastPart blocks.
  // To make up for this, every range is made kLeastPart blocks longer.
  const std::int64_t range = ceil_div(total, workers()) + kLeastPart;
  const auto num_workers = static_cast<std::size_t>(workers());
  std::size_t count = 0;
  std::size_t worker = 0;
  std::int64_t left = range;
  std::int32_t parts = 0;
  const auto end_range = [&] {
    starts[++worker] = static_cast<std::int32_t>(count);
    left = range;
  };
  starts[0] = 0;
  for (const Tile& tile : tiles_)
    for (std::int64_t unit = 0; unit < units_of(tile); ++unit) {
      const std::int64_t blocks = blocks_of(tile);
      const std::size_t begin = count;
      for (std::int64_t at = 0; at < blocks;) {
        const bool is_last = worker + 1 == num_workers;
        if (left < kLeastPart && !is_last) {
          end_range();
          continue;
        }
        std::int64_t size = is_last ? blocks - at : std::min(left, blocks - at);
        if (blocks - at - size < kLeastPart) size = blocks - at;
        works[count] = work_of(tile, unit);
        works[count].first_block = static_cast<std::int32_t>(at);
        works[count++].end_block = static_cast<std::int32_t>(at + size);
        at += size;
        left -= size;
      }
      works[count - 1].end_block = TileWork::kAllBlocks;
      for (std::size_t i = begin; i < count && count - begin > 1; ++i) {
        works[i].part = static_cast<std::uint16_t>(i - begin);
        works[i].parts = static_cast<std::uint16_t>(count - begin);
        works[i].first_part = parts;
      }
      if (count - begin > 1) parts += static_cast<std::int32_t>(count - begin);
    }
  while (worker < num_workers) end_range();
  return static_cast<std::int64_t>(count);
}

std::int64_t plan_tiles(const TiledRows& tokens, std::int64_t group, std::int64_t tile_rows, std::int64_t blocks,
                        const BlockPlan& plan) {
  std::int64_t block = 0;
  const auto add = [&](std::size_t request, std::int64_t tile, std::uint8_t valid) {
    plan.requests[block] = static_cast<std::int32_t>(request);
    plan.tiles[block] = static_cast<std::int32_t>(tile);
    plan.chunks[block] = 0;
    plan.valid[block++] = valid;
  };
  for (std::size_t b = 0; b < tokens.query_lens.size(); ++b) {
    const std::int64_t first = tokens.first_tile(b, group, tile_rows);
    // The last tile sees the most keys, so its block comes first.
    for (std::int64_t tile = tokens.tiles_end(b, group, tile_rows) - 1; tile >= first; --tile) add(b, tile, 1);
  }
  const std::int64_t tiles = block;
  while (block < blocks) add(0, 0, 0);
  *plan.chunk_size = std::numeric_limits<std::int32_t>::max();
  return tiles;
}

ChunkGrid chunk_grid(std::int64_t requests, const ChunkLimits& limits) {
  // Keys are not cut if a KV head has at least this many requests per resident block (docs/measurements/kernels.md).
  constexpr std::int64_t kEnough = 3;
  if (requests >= kEnough * (limits.resident_blocks / limits.kv_heads)) return {requests, false};
  return single_row_grid(requests, limits);
}

ChunkGrid single_row_grid(std::int64_t requests, const ChunkLimits& limits) {
  const std::int64_t resident = limits.resident_blocks / limits.kv_heads;
  if (requests >= resident) return {requests + resident, true};
  return {std::min(resident, requests * std::max<std::int64_t>(1, ceil_div(limits.max_kv_len, kLeastChunk))), true};
}

namespace {

// Iterates over the single-row requests and the numbers of keys that they see.
class SingleRows {
 public:
  SingleRows(std::span<const std::int32_t> query_lens, std::span<const std::int32_t> kv_lens, std::int64_t window)
      : query_lens_(query_lens), kv_lens_(kv_lens), window_(window) {}
  // Calls f(request, keys) for each single-row request.
  void for_each(const auto& f) const {
    for (std::size_t b = 0; b < kv_lens_.size(); ++b)
      if (query_lens_[b] == 1) f(b, keys_seen(kv_lens_[b], window_));
  }

 private:
  std::span<const std::int32_t> query_lens_;
  std::span<const std::int32_t> kv_lens_;
  std::int64_t window_;
};

// Returns the smallest chunk size that cuts all rows into at most `blocks` chunks. The size is at least kLeastChunk
// keys, or the number of keys of the longest row if this number is less. The size never exceeds the number of keys of
// the longest row.
std::int64_t find_chunk_size(const SingleRows& single_rows, std::int64_t blocks) {
  std::int64_t size = 1;
  single_rows.for_each([&](std::size_t, std::int64_t keys) { size = std::max(size, keys); });
  std::int64_t low = std::min(size, kLeastChunk);
  while (low < size) {
    const std::int64_t middle = (low + size) / 2;
    std::int64_t needed = 0;
    single_rows.for_each([&](std::size_t, std::int64_t keys) { needed += ceil_div(keys, middle); });
    if (needed > blocks) {
      low = middle + 1;
    } else {
      size = middle;
    }
  }
  return size;
}

}  // namespace

std::int64_t plan_chunks(std::span<const std::int32_t> query_lens, std::span<const std::int32_t> kv_lens,
                         std::int64_t rows, const ChunkGrid& grid, std::int64_t window, const BlockPlan& plan) {
  constexpr std::int64_t kWhole = std::numeric_limits<std::int32_t>::max();
  const SingleRows single_rows(query_lens, kv_lens, window);
  const std::int64_t size = grid.split ? find_chunk_size(single_rows, grid.blocks) : kWhole;
  *plan.chunk_size = static_cast<std::int32_t>(size);

  std::int64_t block = 0;
  std::size_t started = 0;  // number of requests with a known first block
  const auto start_until = [&](std::size_t end) {
    for (; started < end; ++started) plan.starts[started] = static_cast<std::int32_t>(block);
  };
  const auto add = [&](std::size_t request, std::int64_t chunk, std::uint8_t valid) {
    plan.requests[block] = static_cast<std::int32_t>(request);
    plan.tiles[block] = 0;
    plan.chunks[block] = static_cast<std::int32_t>(chunk);
    plan.valid[block++] = valid;
  };
  single_rows.for_each([&](std::size_t request, std::int64_t keys) {
    start_until(request + 1);
    const std::int64_t chunks = std::max<std::int64_t>(ceil_div(keys, size), 1);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) add(request, chunk, 1);
  });
  start_until(static_cast<std::size_t>(rows) + 1);
  const std::int64_t used = block;
  while (block < grid.blocks) add(0, 0, 0);
  return used;
}

}  // namespace tessera
