// Layers that the towers of vision models share.
#pragma once

#include <string>
#include <vector>

#include "tessera/model/config/vision_config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// Inputs of a tower. S is the number of patches, including padding.
struct TowerInputs {
  ir::ValueId patches;       // X[S, patch_values]
  ir::ValueId rotation;      // f32[S, head_dim]: cosines and sines of each patch's position
  ir::ValueId image_ranges;  // i32[S, 2]: first row that each patch attends to, and one past the last
};
TowerInputs declare_tower_inputs(LayerBuilder& b, const VisionConfig& config);

// Multiplies patches by a matrix, which is equal to a convolution over whole patches; the weight is stored as [hidden,
// channels, frames, height, width]. `added` [S, hidden] is added to the result.
ir::ValueId embed_patches(LayerBuilder& b, const VisionConfig& config, ir::ValueId patches, bool bias,
                          std::optional<ir::ValueId> added = std::nullopt);

// Returns y + proj(attention(rotate(qkv(x)))), where x and y are [S, hidden]. `prefix` begins the tensors' names.
ir::ValueId attend_patches(LayerBuilder& b, const VisionConfig& config, const TowerInputs& inputs, ir::ValueId x,
                           ir::ValueId ranges, ir::ValueId y, const std::string& prefix);

// Views [S, hidden] as [S / merged patches, hidden · merged patches]: the patches of a token side by side.
ir::ValueId merge_patches(LayerBuilder& b, const VisionConfig& config, ir::ValueId x);

// Returns second(gelu(first(x))), x [U, hidden · merged patches] → [U, out_hidden_size].
ir::ValueId merger_mlp(LayerBuilder& b, const VisionConfig& config, ir::ValueId x, const std::string& first,
                       const std::string& second);

// Returns x · wᵀ + bias (+ residual) with the tensors "<name>.weight" and "<name>.bias".
ir::ValueId biased_linear(LayerBuilder& b, const std::string& name, ir::ValueId x, std::int64_t rows,
                          std::optional<ir::ValueId> residual = std::nullopt);

}  // namespace tessera
