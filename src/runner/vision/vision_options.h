// How a model's vision tower runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct VisionOptions {
  // Patches of one forward, padding included. An image has at most so many; several are packed up to this.
  std::int64_t max_patches = 16384;
  // Budgets that graphs are captured for, ascending multiples of the tower's merged patches; empty: none.
  std::vector<std::int64_t> sizes = {};
  // False: no sizes, because graphs are switched off; forwards have that as their reason.
  bool graphs = true;
  // Above 0: SGLang's way in place of budgets. A forward has exactly its images' patches, is captured when that number
  // first comes, and so many graphs are kept, those used last.
  std::int64_t exact_graphs = 0;
  // Operators at which the tower is cut into pieces; none: a forward is one graph.
  std::vector<std::string> split_ops = {};
};

// Multiples of 64 patches (or of as many as hold whole tokens of `merged_patches`) up to 2048, where the tower is bound
// by its launches; from there on each doubling has 16 steps, so that padding is less than a sixteenth. The last one is
// `max_patches`.
std::vector<std::int64_t> default_vision_sizes(std::int64_t merged_patches, std::int64_t max_patches);

}  // namespace tessera
