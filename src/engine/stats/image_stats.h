// Counts an engine's work on images.
#pragma once

#include <cstdint>

#include "tessera/runner/vision/tower_use.h"

namespace tessera {

// Every member except `cached_bytes` counts from the start of the engine.
struct ImageStats {
  std::int64_t images = 0;        // images of admitted requests
  std::int64_t image_tokens = 0;  // tokens of these images
  std::int64_t encoded = 0;       // images that the tower computed
  std::int64_t cache_hits = 0;    // images whose rows were still on the device
  std::int64_t forwards = 0;      // forwards of the tower
  std::int64_t graph_hits = 0;    // forwards of the tower that replayed a graph
  TowerCounts by_reason{};        // forwards of the tower by size of the replayed graph (0: eager) and by reason
  double tower_seconds = 0;       // host seconds in the encoder's calls, which on a GPU only enqueue forwards
  std::int64_t cached_bytes = 0;  // bytes of the rows that are kept now
};

}  // namespace tessera
