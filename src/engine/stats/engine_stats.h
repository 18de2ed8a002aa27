// A snapshot of an engine's state and counters, for metrics and for people to read.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/drafts/draft_stats.h"
#include "tessera/engine/stats/graph_inventory.h"
#include "tessera/engine/stats/image_stats.h"
#include "tessera/engine/stats/prefill_work.h"
#include "tessera/runner/forward_counters.h"

namespace tessera {

struct EngineStats {
  std::int64_t running = 0;        // requests in the current batch
  std::int64_t queued = 0;         // requests that wait for room
  std::int64_t queued_tokens = 0;  // uncomputed tokens of the queued requests; cached tokens count too
  std::size_t num_cache_groups = 0;
  std::array<CacheGroupStats, ir::kMaxCacheGroups> cache_groups{};  // only the first num_cache_groups are used
  std::int64_t page_size = 0;
  // Counters since the start:
  std::int64_t prompt_tokens = 0;  // tokens of admitted prompts
  std::int64_t cached_tokens = 0;  // number of prompt_tokens that were found in the prefix cache
  std::int64_t output_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t split_chunks = 0;        // steps that computed fewer prompt tokens than possible, to fit a captured size
  std::int64_t profile_cache_hits = 0;  // entries of the profile cache that an earlier start had stored
  std::int64_t steps = 0;
  ImageStats images{};
  DraftStats drafts{};
  PrefillWork prefill{};
  RetentionStats retention{};  // a text whose retention time is over counts until the next step
  ForwardCounters forwards{};
  std::shared_ptr<const GraphInventory> graphs{};  // the current graphs; never null in an engine's snapshot

  // Adds the numbers of another engine, which has the same options as this engine. Leaves `graphs` unchanged.
  void add(const EngineStats& more);

  // Returns the group with the highest share of its pages in use (CacheGroupStats::usage()), because this group limits
  // admission. If several groups have the same share, returns the first of them.
  const CacheGroupStats& fullest_group() const {
    return *std::max_element(cache_groups.begin(), cache_groups.begin() + std::max<std::size_t>(num_cache_groups, 1),
                             [](const auto& a, const auto& b) { return a.usage() < b.usage(); });
  }
};

// Returns the sum of the snapshots in `each`, one for each engine. `graphs` of the result is that of the first engine.
// Precondition: there is at least one engine, and all have the same options.
EngineStats sum_of(std::span<const EngineStats> each);

}  // namespace tessera
