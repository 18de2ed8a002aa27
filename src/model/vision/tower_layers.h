// Builds the layers that the vision towers share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/model/config/vision_config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// The inputs of a tower. S is the number of patches, including padding.
struct TowerInputs {
  ir::ValueId patches;       // X[S, patch_values]
  ir::ValueId rotation;      // f32[S, head_dim]: cosines and sines for each patch's position
  ir::ValueId image_ranges;  // i32[S, 2]: the range of rows to which each patch attends
};
TowerInputs declare_tower_inputs(LayerBuilder& b, const VisionConfig& config);

// Multiplies patches by a matrix. This equals a convolution whose kernel size and stride are the size of a patch. The
// checkpoint stores the weight as [hidden, channels, frames, height, width]. `added` [S, hidden] is added to the
// result.
ir::ValueId embed_patches(LayerBuilder& b, const VisionConfig& config, ir::ValueId patches, bool bias,
                          std::optional<ir::ValueId> added = std::nullopt);

// Returns y + proj(attention(rotate(qkv(x)))), where x and y are [S, hidden]. The tensors' names begin with `prefix`.
ir::ValueId attend_patches(LayerBuilder& b, const VisionConfig& config, const TowerInputs& inputs, ir::ValueId x,
                           ir::ValueId ranges, ir::ValueId y, const std::string& prefix);

// Returns the layer norm of the rows of x, with the tensors "<prefix>weight" and "<prefix>bias".
ir::ValueId layer_norm(LayerBuilder& b, const VisionConfig& config, ir::ValueId x, const std::string& prefix);

// Returns y + second(activation(first(x))), where x and y are [S, hidden] and `activation` is an operator's name. The
// rows between the two linears have intermediate_size values.
ir::ValueId plain_mlp(LayerBuilder& b, const VisionConfig& config, ir::ValueId x, ir::ValueId y,
                      const std::string& first, std::string_view activation, const std::string& second);

// Returns a view of x [S, hidden] as [S / merged_patches(), hidden · merged_patches()]. The patches of one image
// token form one row.
ir::ValueId merge_patches(LayerBuilder& b, const VisionConfig& config, ir::ValueId x);

// Returns second(gelu(first(x))), which has the shape [U, out_hidden_size]. The shape of x is [U, hidden ·
// merged_patches()], where U is the number of image tokens.
ir::ValueId merger_mlp(LayerBuilder& b, const VisionConfig& config, ir::ValueId x, const std::string& first,
                       const std::string& second);

// Returns x · wᵀ + bias (+ residual) with the tensors "<name>.weight" and "<name>.bias".
ir::ValueId biased_linear(LayerBuilder& b, const std::string& name, ir::ValueId x, std::int64_t rows,
                          std::optional<ir::ValueId> residual = std::nullopt);

}  // namespace tessera
