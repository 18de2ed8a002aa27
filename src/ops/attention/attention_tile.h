// The inner part of attention on the CPU: one KV head of one request and a tile of its query rows, a row being one
// query head of one token. attention_cpu.cpp cuts a forward into tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ir/type.h"
#include "tessera/ops/attention/attention.h"

namespace tessera {

inline constexpr std::int64_t kTileRows = 96;   // the most rows of a tile: 16 register tiles of 6 rows
inline constexpr std::int64_t kBlockKeys = 64;  // keys of a block
// Keys to prefetch ahead: consecutive keys of a head lie so far apart that hardware prefetchers do not follow them.
inline constexpr std::int64_t kPrefetchKeys = 8;

inline std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

struct AttentionProblem {
  const std::byte* q;        // X[num_rows, heads, head_dim]
  const std::byte* k_cache;  // Y[num_slots, kv_heads, head_dim]
  const std::byte* v_cache;  // as k_cache: a value is the first value_dim of its head_dim elements
  std::byte* out;            // X[num_rows, heads, value_dim]
  const float* sinks;        // [heads]; null: none
  std::int64_t num_rows;     // T of the bucket
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t value_dim;  // at most head_dim
  std::int64_t page_size;
  std::int64_t window;
  float scale;
  float softcap;
  AttentionMetadata metadata;
  const std::int32_t* wanted_starts;  // [requests]: the first rows that are wanted; null: all are
  std::byte* workspace;
  std::int64_t workers;
  bool deterministic;      // compute tiles of few rows in the same way as tiles of many rows
  std::int64_t tile_rows;  // of this forward's tiles, at most kTileRows

  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t padded_dim() const { return round_up(head_dim, 16); }
  std::int64_t padded_value_dim() const { return round_up(value_dim, 16); }
};

// One worker's memory.
struct AttentionScratch {
  explicit AttentionScratch(float* base, std::int64_t padded_dim)
      : q(base),
        keys(q + kTileRows * padded_dim),
        values(keys + kBlockKeys * padded_dim),
        sums(values + kBlockKeys * padded_dim),
        scores(sums + kTileRows * padded_dim),
        greatest(scores + kTileRows * kBlockKeys),
        total(greatest + kTileRows),
        offsets(reinterpret_cast<std::int64_t*>(total + kTileRows)) {}
  static std::int64_t bytes(std::int64_t padded_dim) {
    const std::int64_t floats = 2 * (kTileRows + kBlockKeys) * padded_dim + kTileRows * kBlockKeys + 2 * kTileRows +
                                2 * (kBlockKeys + kPrefetchKeys);
    return round_up(floats * static_cast<std::int64_t>(sizeof(float)), kDeviceAlignment);
  }

  float* q;               // [rows, padded_dim], times scale
  float* keys;            // [padded_dim, kBlockKeys]
  float* values;          // [kBlockKeys, padded_dim], of which padded_value_dim columns are used
  float* sums;            // the same for rows: Σ exp(s_j - greatest) · v_j so far
  float* scores;          // [rows, kBlockKeys]
  float* greatest;        // [rows]
  float* total;           // [rows]: Σ exp(s_j - greatest) so far
  std::int64_t* offsets;  // [kBlockKeys + kPrefetchKeys]: elements from the cache's start to the key
};

// The query rows [row_begin, row_end) of one request and KV head; row r is query head r mod G of token r / G.
struct AttentionTile {
  std::int64_t head;
  std::int64_t row_begin;
  std::int64_t row_end;
  std::int64_t query_start;  // first token of the request
  std::int64_t offset;       // position of that token: kv_len - query_len
  const std::int32_t* pages;

  std::int64_t rows() const { return row_end - row_begin; }
};

// For the dtypes of queries and output, and of the cache; kUnimplemented where they are not floating point.
struct AttendTile {
  void (*run)(const AttentionProblem& problem, const AttentionTile& tile, const AttentionScratch& scratch);
};
Result<AttendTile> find_attend_tile(ir::DType dtype, ir::DType cache_dtype);

}  // namespace tessera
