// A snapshot of an engine's state and counters, for metrics and people.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/images/image_stats.h"
#include "tessera/engine/report/graph_inventory.h"
#include "tessera/runner/forward_counters.h"

namespace tessera {

struct EngineStats {
  std::int64_t running = 0;  // requests in the present batch
  std::int64_t queued = 0;   // requests that wait for room
  std::size_t num_cache_groups = 0;
  std::array<CacheGroupStats, ir::kMaxCacheGroups> cache_groups{};  // of the first num_cache_groups
  std::int64_t page_size = 0;
  // Since the start:
  std::int64_t prompt_tokens = 0;  // of admitted requests
  std::int64_t cached_tokens = 0;  // of those, found in the prefix cache
  std::int64_t output_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t split_chunks = 0;        // steps whose prompts were cut so that they fill a captured size
  std::int64_t profile_cache_hits = 0;  // entries that earlier starts left on disk
  std::int64_t steps = 0;
  ImageStats images{};
  ForwardCounters forwards{};
  std::shared_ptr<const GraphInventory> graphs{};  // as of now; never null in an engine's

  // Of another engine with the same options: sums, but for graphs, which stay.
  void add(const EngineStats& more);

  // Of the cache group with the least room, which is what limits admission; the first of equal ones.
  const CacheGroupStats& fullest_group() const {
    return *std::max_element(cache_groups.begin(), cache_groups.begin() + std::max<std::size_t>(num_cache_groups, 1),
                             [](const auto& a, const auto& b) { return a.usage() < b.usage(); });
  }
};

// Of engines with the same options, one at least; graphs are the first one's.
EngineStats sum_of(std::span<const EngineStats> each);

}  // namespace tessera
