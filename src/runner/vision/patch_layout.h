// Where the patches of packed images lie: what a tower's index inputs hold. Pure functions of the images' grids.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/image/patches.h"
#include "tessera/model/config/vision_config.h"

namespace tessera {

// Lists of a forward, row by row in the tower's order (model/vision/towers.h has the inputs' names). Those that the
// tower has no input for stay empty.
struct PatchLayout {
  std::vector<std::int32_t> positions;      // [S, 2]: row and column in the image
  std::vector<std::int32_t> image_ranges;   // [S, 2]
  std::vector<std::int32_t> window_ranges;  // [S, 2]
  std::vector<std::int32_t> token_order;    // [U]
  std::vector<std::int32_t> position_rows;  // [S, 4]
  std::vector<float> position_weights;      // [S, 4]
  // [U], of every tower: which of its image's merge units a merged row is. Patches are given in this order.
  std::vector<std::int32_t> units;

  std::int64_t patches() const { return static_cast<std::int64_t>(image_ranges.size()) / 2; }
  void clear();
};

// Adds an image behind those that are there: attention stays within each of its frames. Precondition: h and w are
// multiples of the merge size.
void append_image(const PatchGrid& grid, const VisionConfig& config, PatchLayout& layout);
// Adds rows that attend to nothing, up to `patches`, a multiple of the merged patches.
void pad_layout(std::int64_t patches, const VisionConfig& config, PatchLayout& layout);

}  // namespace tessera
