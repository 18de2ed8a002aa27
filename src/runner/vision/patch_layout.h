// Computes the index inputs of a vision tower. They describe where the patches of packed images lie. The functions are
// pure functions of the images' grids.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/image/patches.h"
#include "tessera/model/config/vision_config.h"

namespace tessera {

// The index lists of a forward of S patches and U merge units (squares of patches that become one token). Rows are in
// the tower's order. model/vision/towers.h defines the names of the inputs. A list stays empty if the tower has no such
// input.
struct PatchLayout {
  std::vector<std::int32_t> positions;      // [S, 2]: row and column in the image
  std::vector<std::int32_t> image_ranges;   // [S, 2]: first patch of the patch's frame, and one past the last
  std::vector<std::int32_t> window_ranges;  // [S, 2]: the same for the patch's window
  std::vector<std::int32_t> token_order;    // [U]: for each token in the order of the images, its merged row
  std::vector<std::int32_t> position_rows;  // [S, 4]: indices of the learned positions that are interpolated
  std::vector<float> position_weights;      // [S, 4]: their weights
  // [U]: for each merged row (a row that the tower makes from one merge unit), the index of its merge unit within the
  // image. This list is filled for every tower. Patches are uploaded in the order of the merged rows.
  std::vector<std::int32_t> units;

  std::int64_t patches() const { return static_cast<std::int64_t>(image_ranges.size()) / 2; }
  void clear();
};

// Adds an image after the others. A patch attends only to patches of its own frame. Precondition: h and w are multiples
// of the merge size.
void append_image(const PatchGrid& grid, const VisionConfig& config, PatchLayout& layout);
// Adds padding rows, which attend to nothing, until the layout has `patches` rows. Precondition: `patches` is a
// multiple of the patches of a merge unit.
void pad_layout(std::int64_t patches, const VisionConfig& config, PatchLayout& layout);

}  // namespace tessera
