// Options of a model's vision tower.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct VisionOptions {
  // The maximum number of patches in one forward, padding included. An image therefore cannot have more patches either.
  // The engine's plan raises this number for image processors that make larger images. A forward of several images
  // still has at most 16384 patches.
  std::int64_t max_patches = 16384;
  // The budgets, which are the numbers of patches that graphs are captured for, ascending. Each is a multiple of the
  // number of patches that the tower merges into one token. If empty, there are no graphs.
  std::vector<std::int64_t> sizes = {};
  // If false, graphs are switched off. In this case `sizes` is empty, and forwards report the reason kGraphsDisabled.
  bool graphs = true;
  // If above 0, SGLang's scheme replaces budgets: a forward has exactly the patches of its images, without padding, and
  // is captured when this number of patches first appears. At most `exact_graphs` graphs are kept. If there are that
  // many, the least recently used graph is dropped before a new one is captured.
  std::int64_t exact_graphs = 0;
  // Operators at which the tower is cut into pieces. If empty, a forward is one graph.
  std::vector<std::string> split_ops = {};
};

// Returns the default budgets. Up to 2048 patches they are the multiples of a step, which is the least common multiple
// of 64 and `merged_patches`. Smaller steps would save little time there, because launches take most of the tower's
// time. Above 2048 patches, a step of 64 gives 16 budgets for each doubling, so padding is less than a sixteenth of the
// patches. The last budget is `max_patches`.
std::vector<std::int64_t> default_vision_sizes(std::int64_t merged_patches, std::int64_t max_patches);

}  // namespace tessera
