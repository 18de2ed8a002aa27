#include <fmt/format.h>

#include "tessera/model/vision/tower_layers.h"
#include "tessera/model/vision/towers.h"

namespace tessera {

using ir::ValueId;

// Builds the tower. Each block computes:
//   h += proj(attention(rotate(qkv(norm(h)))));  h += fc2(quick_gelu(fc1(norm(h))))
// A patch attends to its whole image. The result is merger(norm(h)).
ValueId build_qwen2_tower(LayerBuilder& b, const VisionConfig& config) {
  const TowerInputs inputs = declare_tower_inputs(b, config);
  ValueId h = embed_patches(b, config, inputs.patches, /*bias=*/false);
  for (std::int64_t block = 0; block < config.depth; ++block) {
    b.graph.scope(fmt::format("blocks.{}", block));
    const std::string p = b.tensor(fmt::format("blocks.{}.", block));
    h = attend_patches(b, config, inputs, layer_norm(b, config, h, p + "norm1."), inputs.image_ranges, h, p + "attn.");
    h = plain_mlp(b, config, layer_norm(b, config, h, p + "norm2."), h, p + "mlp.fc1", "quick_gelu", p + "mlp.fc2");
  }
  b.graph.scope("merger");
  const ValueId normed = layer_norm(b, config, h, b.tensor("merger.ln_q."));
  return merger_mlp(b, config, merge_patches(b, config, normed), b.tensor("merger.mlp.0"), b.tensor("merger.mlp.2"));
}

}  // namespace tessera
