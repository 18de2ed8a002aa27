#include <fmt/format.h>

#include <algorithm>

#include "tessera/model/vision/tower_layers.h"
#include "tessera/model/vision/towers.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;
using ir::ValueId;

// Returns the position embeddings of the patches. The checkpoint has one learned embedding for each point of a square
// grid. A patch lies between four points, and its embedding is interpolated from the embeddings of these points.
ValueId learned_positions(LayerBuilder& b, const VisionConfig& config) {
  const ValueId rows =
      b.graph.input(std::string(vision_inputs::kPositionRows), {DType::kInt32, {Symbol::kVisionRows, 4}});
  const ValueId weights =
      b.graph.input(std::string(vision_inputs::kPositionWeights), {DType::kFloat32, {Symbol::kVisionRows, 4}});
  const ValueId table =
      b.matrix(b.tensor("pos_embed.weight"), config.position_side * config.position_side, config.hidden_size);
  return b.graph.op("weighted_rows", {table, rows, weights});
}

// Returns one deepstack level, which the language model adds to the hidden states after one of its first layers.
ValueId deepstack_level(LayerBuilder& b, const VisionConfig& config, ValueId h, std::int64_t level) {
  const std::string p = b.tensor(fmt::format("deepstack_merger_list.{}.", level));
  const ValueId normed = layer_norm(b, config, merge_patches(b, config, h), p + "norm.");
  return merger_mlp(b, config, normed, p + "linear_fc1", p + "linear_fc2");
}

}  // namespace

// Builds the tower. Each block computes:
//   h += proj(attention(rotate(qkv(norm(h)))));  h += fc2(gelu(fc1(norm(h))))
// A row of the result is merger(norm(h)), followed by the deepstack levels.
ValueId build_qwen3_tower(LayerBuilder& b, const VisionConfig& config) {
  const TowerInputs inputs = declare_tower_inputs(b, config);
  const ValueId positions = learned_positions(b, config);
  ValueId h = embed_patches(b, config, inputs.patches, /*bias=*/true, positions);
  std::vector<ValueId> levels;
  for (std::int64_t block = 0; block < config.depth; ++block) {
    b.graph.scope(fmt::format("blocks.{}", block));
    const std::string p = b.tensor(fmt::format("blocks.{}.", block));
    h = attend_patches(b, config, inputs, layer_norm(b, config, h, p + "norm1."), inputs.image_ranges, h, p + "attn.");
    h = plain_mlp(b, config, layer_norm(b, config, h, p + "norm2."), h, p + "mlp.linear_fc1", "gelu",
                  p + "mlp.linear_fc2");
    if (std::ranges::binary_search(config.deepstack_blocks, block))
      levels.push_back(deepstack_level(b, config, h, static_cast<std::int64_t>(levels.size())));
  }
  b.graph.scope("merger");
  const ValueId normed = layer_norm(b, config, h, b.tensor("merger.norm."));
  const ValueId merged = merger_mlp(b, config, merge_patches(b, config, normed), b.tensor("merger.linear_fc1"),
                                    b.tensor("merger.linear_fc2"));
  if (levels.empty()) return merged;
  levels.insert(levels.begin(), merged);
  return b.graph.op("join", levels);
}

}  // namespace tessera
