// Builds the graphs of vision towers. A tower turns the packed patches of one or more images (S patches of type X) into
// rows of the language model's embeddings. An input of the graph says to which rows each row attends, so one graph
// works for images of any size.
//
//   tower  patches X[S, patch_values] and their positions → X[S / merged_patches(), row_values()]
#pragma once

#include <string_view>

#include "tessera/model/config/vision_config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// Builds the tower of Qwen2-VL (Wang et al., arXiv 2409.12191).
ir::ValueId build_qwen2_tower(LayerBuilder& b, const VisionConfig& config);
// Builds the tower of Qwen2.5-VL (Bai et al., arXiv 2502.13923). The tower's patches must be ordered by attention
// window.
ir::ValueId build_qwen2_5_tower(LayerBuilder& b, const VisionConfig& config);
// Builds the tower of Qwen3-VL and Qwen3.5.
ir::ValueId build_qwen3_tower(LayerBuilder& b, const VisionConfig& config);

// The names of a tower's inputs. S is the number of patches, including padding. U = S / merged_patches() is the number
// of image tokens.
namespace vision_inputs {
inline constexpr std::string_view kPatches = "patches";                 // X[S, patch_values]
inline constexpr std::string_view kPatchPositions = "patch_positions";  // i32[S, 2]: row and column in the image
// i32[S, 2]: for each row, the range of rows to which it attends: the first row, and one past the last row
inline constexpr std::string_view kImageRanges = "image_ranges";
// i32[S, 2]: like kImageRanges, for blocks with window attention
inline constexpr std::string_view kWindowRanges = "window_ranges";
// i32[U]: for each image token, the index of its row among the merged patches
inline constexpr std::string_view kTokenOrder = "token_order";
// i32[S, 4]: the rows of the learned position table from which a patch's position embedding is interpolated
inline constexpr std::string_view kPositionRows = "position_rows";
inline constexpr std::string_view kPositionWeights = "position_weights";  // f32[S, 4]: weights of these rows
}  // namespace vision_inputs

}  // namespace tessera
