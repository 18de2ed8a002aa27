// The graphs of vision towers. A tower turns the packed patches of one or more images into rows of the language model's
// embeddings. The rows that each row attends to are an input, so one graph works for images of any size.
//
//   tower  patches X[S, patch_values] and their positions → X[S / merged patches, row_values()]
#pragma once

#include <string_view>

#include "tessera/model/config/vision_config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// Builds the tower of Qwen2.5-VL (Bai et al., arXiv 2502.13923). Its patches come in the order of its attention
// windows.
ir::ValueId build_qwen2_5_tower(LayerBuilder& b, const VisionConfig& config);
// Builds the tower of Qwen3-VL and Qwen3.5.
ir::ValueId build_qwen3_tower(LayerBuilder& b, const VisionConfig& config);

// Names of a tower's inputs. S is the number of patches, including padding; U = S / merged patches.
namespace vision_inputs {
inline constexpr std::string_view kPatches = "patches";                 // X[S, patch_values]
inline constexpr std::string_view kPatchPositions = "patch_positions";  // i32[S, 2]: row and column in the image
// i32[S, 2]: first row attended to, and one past the last
inline constexpr std::string_view kImageRanges = "image_ranges";
// i32[S, 2]: like kImageRanges, for the blocks with window attention
inline constexpr std::string_view kWindowRanges = "window_ranges";
inline constexpr std::string_view kTokenOrder = "token_order";            // i32[U]: the merged row of each token
inline constexpr std::string_view kPositionRows = "position_rows";        // i32[S, 4]: rows of the learned positions,
inline constexpr std::string_view kPositionWeights = "position_weights";  // f32[S, 4]: and their weights
}  // namespace vision_inputs

}  // namespace tessera
