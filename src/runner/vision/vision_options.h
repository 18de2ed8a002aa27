// Options of a model's vision tower.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct VisionOptions {
  // The largest number of patches of one forward, padding included, and therefore of one image. The engine's plan
  // raises it for image processors that make larger images. Several images are packed together up to 16384 patches.
  std::int64_t max_patches = 16384;
  // The budgets, which are the numbers of patches that graphs are captured for, ascending. Each is a multiple of the
  // number of patches that the tower merges into one token. Empty: there are no graphs.
  std::vector<std::int64_t> sizes = {};
  // False: graphs are switched off. `sizes` is then empty, and forwards report the reason kGraphsDisabled.
  bool graphs = true;
  // Above 0, replaces budgets by SGLang's scheme: a forward has exactly its images' patches, and is captured when that
  // number of patches first appears. At most this many graphs are kept; the least recently used one is dropped.
  std::int64_t exact_graphs = 0;
  // Operators at which the tower is cut into pieces; empty: a forward is one graph.
  std::vector<std::string> split_ops = {};
};

// Returns the default budgets. Up to 2048 patches they are multiples of 64 patches, or of the least common multiple of
// 64 and `merged_patches`. Smaller steps would save little there, because launches take most of the tower's time. Above
// 2048 each doubling has 16 steps, so padding is less than a sixteenth. The last budget is `max_patches`.
std::vector<std::int64_t> default_vision_sizes(std::int64_t merged_patches, std::int64_t max_patches);

}  // namespace tessera
