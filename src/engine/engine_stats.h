// What an engine is doing and has done: a snapshot, for metrics and people.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/engine/graph_inventory.h"
#include "tessera/runner/forward_counters.h"

namespace tessera {

struct EngineStats {
  std::int64_t running = 0;       // requests in the present batch
  std::int64_t queued = 0;        // requests that wait for room
  std::int64_t used_pages = 0;    // by running requests
  std::int64_t cached_pages = 0;  // by the prefix cache alone; freed as soon as they are wanted
  std::int64_t usable_pages = 0;
  std::int64_t page_size = 0;
  // Since the start:
  std::int64_t prompt_tokens = 0;  // of admitted requests
  std::int64_t cached_tokens = 0;  // of those, found in the prefix cache
  std::int64_t output_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t split_chunks = 0;        // steps whose prompts were cut so that they fill a captured size
  std::int64_t profile_cache_hits = 0;  // what earlier starts had left on disk
  std::int64_t steps = 0;
  ForwardCounters forwards{};
  std::shared_ptr<const GraphInventory> graphs{};  // as of now; never null in an engine's
};

}  // namespace tessera
