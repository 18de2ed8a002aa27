// Options of a model's vision tower.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct VisionOptions {
  // Largest number of patches of one forward, padding included, and so of an image. The plan raises it for processors
  // that make larger images; several images are packed up to 16384 patches.
  std::int64_t max_patches = 16384;
  // Budgets with graphs, ascending multiples of the tower's merged patches; empty: none.
  std::vector<std::int64_t> sizes = {};
  // False: there are no sizes because graphs are switched off; forwards report that as their reason.
  bool graphs = true;
  // Above 0, replaces budgets by SGLang's scheme: a forward has exactly its images' patches and is captured when that
  // number first appears. At most this many graphs are kept; the least recently used one is dropped.
  std::int64_t exact_graphs = 0;
  // Operators at which the tower is cut into pieces; empty: a forward is one graph.
  std::vector<std::string> split_ops = {};
};

// Returns multiples of 64 patches (or of the nearest number that holds whole tokens of `merged_patches`) up to 2048,
// where launches dominate the tower's time. Above 2048 each doubling has 16 steps, so padding is less than a sixteenth.
// The last size is `max_patches`.
std::vector<std::int64_t> default_vision_sizes(std::int64_t merged_patches, std::int64_t max_patches);

}  // namespace tessera
