#include "tessera/ops/attention/decode_schedule.h"

#include <algorithm>

#include "tessera/base/ceil_div.h"

namespace tessera {
namespace {

// The keys that a request's last row sees, and the tiles that contain any of them.
struct KeyRange {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t first_tile;
  std::int64_t tiles_end;
};

KeyRange range_of(std::int32_t kv_len, const SegmentLimits& limits) {
  const std::int64_t begin = limits.window > 0 ? std::max<std::int64_t>(0, kv_len - limits.window) : 0;
  return {begin, kv_len, begin / limits.tile_keys, ceil_div(kv_len, limits.tile_keys)};
}

}  // namespace

std::int64_t plan_segments(const SegmentedRows& rows, const SegmentLimits& limits, const SegmentPlan& plan) {
  const auto& [query_lens, kv_lens, first_rows] = rows;
  std::int64_t total = 0;
  for (std::size_t b = 0; b < kv_lens.size(); ++b)
    if (const KeyRange range = range_of(kv_lens[b], limits); rows.has_segments(b))
      total += range.tiles_end - range.first_tile;
  const std::int64_t share = std::max<std::int64_t>(1, ceil_div(total, limits.workers));

  std::int64_t worker = 0;
  std::int64_t left = share;  // number of tiles that the worker can still take
  std::int64_t count = 0;
  std::int64_t slots = 0;
  std::int32_t rows_before = 0;
  plan.starts[0] = 0;
  for (std::size_t b = 0; b < kv_lens.size(); rows_before += query_lens[b++]) {
    if (!rows.has_segments(b)) continue;
    const KeyRange range = range_of(kv_lens[b], limits);
    const std::int64_t first = count;
    for (std::int64_t tile = range.first_tile; tile < range.tiles_end;) {
      if (left == 0) {
        plan.starts[++worker] = static_cast<std::int32_t>(count);
        left = share;
      }
      const std::int64_t tiles = std::min(left, range.tiles_end - tile);
      plan.segments[count++] = {
          .request = static_cast<std::int32_t>(b),
          .row = rows_before + query_lens[b] - 1,
          .begin = static_cast<std::int32_t>(std::max(range.begin, tile * limits.tile_keys)),
          .end = static_cast<std::int32_t>(std::min(range.end, (tile + tiles) * limits.tile_keys)),
          .newest = kv_lens[b] - query_lens[b],
          .part = 0,
          .parts = 1,
          .slot = 0};
      tile += tiles;
      left -= tiles;
    }
    const std::int64_t parts = count - first;
    if (parts == 1) continue;
    for (std::int64_t part = 0; part < parts; ++part) {
      KeySegment& segment = plan.segments[first + part];
      segment.part = static_cast<std::int32_t>(part);
      segment.parts = static_cast<std::int32_t>(parts);
      segment.slot = static_cast<std::int32_t>(slots);
    }
    slots += parts;
  }
  while (worker < limits.workers) plan.starts[++worker] = static_cast<std::int32_t>(count);
  return count;
}

}  // namespace tessera
