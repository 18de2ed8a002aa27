// Computes attention on the CPU for one tile: some query rows of one request and KV head. A row is one query head of
// one token. attention_cpu.cpp cuts a forward into tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ir/type.h"
#include "tessera/ops/attention/attention.h"
#include "tessera/ops/cache/int8_cache.h"

namespace tessera {

inline constexpr std::int64_t kTileRows = 96;  // maximum number of rows of a tile: 16 · 6, for register tiles of 6 rows
inline constexpr std::int64_t kBlockKeys = 64;  // number of keys in a block
// A prefetch loads the key that is this number of keys ahead. Consecutive keys of a head lie too far apart for hardware
// prefetchers to follow.
inline constexpr std::int64_t kPrefetchKeys = 8;

inline std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// One attention operator. X is the type of queries and outputs, and Y is the type of the cache.
struct AttentionProblem {
  const std::byte* q;        // X[num_rows, heads, head_dim]
  const std::byte* k_cache;  // Y[num_slots, kv_heads, head_dim], or a cache of int8 (ops/cache/int8_cache.h)
  const std::byte* v_cache;  // like k_cache; a value is the first value_dim elements of its slot
  std::byte* out;            // X[num_rows, heads, value_dim]
  const float* sinks;        // [heads]; null: no sinks
  CacheScales cache_scales;
  std::int64_t num_rows;  // number of rows, including padding (T)
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t value_dim;  // at most head_dim
  std::int64_t page_size;
  std::int64_t window;
  float scale;
  float softcap;
  AttentionMetadata metadata;
  const std::int32_t* wanted_starts;  // [requests]: each request's first wanted row; null: all rows are wanted
  std::byte* workspace;
  std::int64_t workers;
  bool deterministic;      // true: tiles of few rows are computed like tiles of many rows
  std::int64_t tile_rows;  // number of rows in a tile of this forward, at most kTileRows

  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t padded_dim() const { return round_up(head_dim, 16); }
  std::int64_t int8_blocks() const { return tessera::int8_blocks(head_dim); }
  std::int64_t padded_value_dim() const { return round_up(value_dim, 16); }
};

// Scratch memory of one worker.
struct AttentionScratch {
  explicit AttentionScratch(float* base, std::int64_t padded_dim)
      : q(base),
        keys(q + kTileRows * padded_dim),
        values(keys + kBlockKeys * padded_dim),
        sums(values + kBlockKeys * padded_dim),
        scores(sums + kTileRows * padded_dim),
        greatest(scores + kTileRows * kBlockKeys),
        total(greatest + kTileRows),
        offsets(reinterpret_cast<std::int64_t*>(total + kTileRows)),
        key_scales(total + kTileRows + 2 * (kBlockKeys + kPrefetchKeys)),
        value_scales(key_scales + kBlockKeys * tessera::int8_blocks(padded_dim)) {}
  static std::int64_t bytes(std::int64_t padded_dim) {
    const std::int64_t floats = 2 * (kTileRows + kBlockKeys) * padded_dim + kTileRows * kBlockKeys + 2 * kTileRows +
                                2 * (kBlockKeys + kPrefetchKeys) + 2 * kBlockKeys * tessera::int8_blocks(padded_dim);
    return round_up(floats * static_cast<std::int64_t>(sizeof(float)), kDeviceAlignment);
  }

  float* q;               // [rows, padded_dim]: the queries, times the scale of scores and the scale of keys
  float* keys;            // [padded_dim, kBlockKeys]
  float* values;          // [kBlockKeys, padded_dim]; padded_value_dim columns are used
  float* sums;            // [rows, padded_dim]: Σ exp(s_j - running max) · v_j so far, in padded_value_dim columns
  float* scores;          // [rows, kBlockKeys]
  float* greatest;        // [rows]: the running max of the scores
  float* total;           // [rows]: Σ exp(s_j - running max) so far
  std::int64_t* offsets;  // [kBlockKeys + kPrefetchKeys]: offset of each key from the start of the cache, in elements
  float* key_scales;      // [kBlockKeys, int8_blocks]: the scales of the block's keys; only for a cache of int8
  float* value_scales;    // like key_scales
};

// The query rows [row_begin, row_end) of one request and KV head. With G = group(), row r belongs to token r / G and to
// query head r mod G of the KV head.
struct AttentionTile {
  std::int64_t head;
  std::int64_t row_begin;
  std::int64_t row_end;
  std::int64_t query_start;  // first token of the request
  std::int64_t offset;       // position of this token: kv_len - query_len
  const std::int32_t* pages;

  std::int64_t rows() const { return row_end - row_begin; }
};

// The tile kernel for given dtypes of queries, output and cache. find_attend_tile() returns kUnimplemented if a dtype
// is not floating point.
struct AttendTile {
  void (*run)(const AttentionProblem& problem, const AttentionTile& tile, const AttentionScratch& scratch);
};
Result<AttendTile> find_attend_tile(ir::DType dtype, ir::DType cache_dtype);

}  // namespace tessera
