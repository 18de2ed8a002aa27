// What an engine did with images.
#pragma once

#include <cstdint>

#include "tessera/runner/vision/tower_use.h"

namespace tessera {

// Since the start, but `cached_bytes`.
struct ImageStats {
  std::int64_t images = 0;        // of admitted requests
  std::int64_t image_tokens = 0;  // of those
  std::int64_t encoded = 0;       // that the tower computed
  std::int64_t cache_hits = 0;    // whose rows were kept from before
  std::int64_t forwards = 0;      // of the tower
  std::int64_t graph_hits = 0;    // of those, replayed from a graph
  TowerCounts by_reason{};        // the same, by budget and reason
  double tower_seconds = 0;       // that they took
  std::int64_t cached_bytes = 0;  // of rows that are kept now
};

}  // namespace tessera
