#include "tessera/model/vision/tower_layers.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/model/vision/towers.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;
using ir::ValueId;

// Returns the rotation frequencies for one coordinate of a patch. Half of a head's pairs are rotated by the patch's row
// index, and the other half by its column index. Both halves use the same frequencies.
std::vector<float> axial_frequencies(const VisionConfig& config) {
  const std::int64_t half = config.head_dim() / 2;
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < half; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(half);
    frequencies.push_back(1.0F / std::pow(static_cast<float>(config.rope_theta), exponent));
  }
  return frequencies;
}

}  // namespace

TowerInputs declare_tower_inputs(LayerBuilder& b, const VisionConfig& config) {
  TowerInputs inputs;
  inputs.patches = b.graph.input(std::string(vision_inputs::kPatches),
                                 {b.options().dtype, {Symbol::kVisionRows, config.patch_values()}});
  const ValueId positions =
      b.graph.input(std::string(vision_inputs::kPatchPositions), {DType::kInt32, {Symbol::kVisionRows, 2}});
  inputs.image_ranges =
      b.graph.input(std::string(vision_inputs::kImageRanges), {DType::kInt32, {Symbol::kVisionRows, 2}});
  inputs.rotation = b.graph.op("axial_table", {positions, b.constant("tower.inv_freq", axial_frequencies(config))});
  return inputs;
}

ValueId embed_patches(LayerBuilder& b, const VisionConfig& config, ValueId patches, bool bias,
                      std::optional<ValueId> added) {
  const std::int64_t side = config.patch_size;
  const StridedStorage flat{
      .tensor_shape = {config.hidden_size, config.in_channels, config.temporal_patch_size, side, side},
      .row_stride = config.patch_values()};
  const std::string name = b.tensor("patch_embed.proj");
  return b.linear(name, patches, {{.tensor = name, .rows = config.hidden_size, .storage = flat}}, bias, Parallel::kNone,
                  added);
}

ValueId attend_patches(LayerBuilder& b, const VisionConfig& config, const TowerInputs& inputs, ValueId x,
                       ValueId ranges, ValueId y, const std::string& prefix) {
  const ValueId qkv = biased_linear(b, prefix + "qkv", x, 3 * config.hidden_size);
  b.graph.op("rotate_heads", {qkv, inputs.rotation}, {{"heads", 2 * config.num_heads}});
  const ValueId attended = b.graph.op("segment_attention", {qkv, ranges}, {{"heads", config.num_heads}});
  return biased_linear(b, prefix + "proj", attended, config.hidden_size, y);
}

ValueId layer_norm(LayerBuilder& b, const VisionConfig& config, ValueId x, const std::string& prefix) {
  const std::int64_t size = *b.graph.type(x).shape.back().constant();
  return b.graph.op(
      "layer_norm",
      {x, b.norm_weight(prefix + "weight", size), b.vector(prefix + "bias", size, b.options().weight_type())},
      {{"eps", config.norm_eps}});
}

ValueId plain_mlp(LayerBuilder& b, const VisionConfig& config, ValueId x, ValueId y, const std::string& first,
                  std::string_view activation, const std::string& second) {
  const ValueId inner = biased_linear(b, first, x, config.intermediate_size);
  return biased_linear(b, second, b.graph.op(activation, {inner}), config.hidden_size, y);
}

ValueId merge_patches(LayerBuilder& b, const VisionConfig& config, ValueId x) {
  const ir::Dim tokens = ir::Dim(Symbol::kVisionRows).divided_by(config.merged_patches());
  const std::string shape = fmt::format("{}, {}", tokens.to_string(), config.hidden_size * config.merged_patches());
  return b.graph.op("reshape", {x}, {{"shape", shape}});
}

ValueId merger_mlp(LayerBuilder& b, const VisionConfig& config, ValueId x, const std::string& first,
                   const std::string& second) {
  const ValueId inner = biased_linear(b, first, x, config.hidden_size * config.merged_patches());
  return biased_linear(b, second, b.graph.op("gelu", {inner}, {{"tanh", false}}), config.out_hidden_size);
}

ValueId biased_linear(LayerBuilder& b, const std::string& name, ValueId x, std::int64_t rows,
                      std::optional<ValueId> residual) {
  return b.linear(name, x, {{.tensor = name, .rows = rows}}, /*bias=*/true, Parallel::kNone, residual);
}

}  // namespace tessera
