#include <fmt/format.h>

#include "tessera/device/alignment.h"
#include "tessera/model/vision/tower_layers.h"
#include "tessera/model/vision/towers.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;
using ir::ValueId;

ValueId rms_norm(LayerBuilder& b, const VisionConfig& config, ValueId x, const std::string& tensor) {
  return b.graph.op("rms_norm", {x, b.norm_weight(tensor, config.hidden_size)}, {{"eps", config.norm_eps}});
}

// Returns y + down(silu(gate(x)) · up(x)). The rows of intermediate values are padded with zeros to whole tiles,
// because matmuls are several times slower if the size of a row is not a multiple of 16 bytes. For example, an
// intermediate size of 3420, which some models have, is 6840 bytes in a 16-bit type. The padding does not change the
// result, because silu(0) · 0 is 0.
ValueId gated_mlp_of(LayerBuilder& b, const VisionConfig& config, ValueId x, ValueId y, const std::string& prefix) {
  constexpr std::int64_t kTile = 64;
  const std::int64_t inner = align_up(config.intermediate_size, kTile);
  const auto rows = [&](const char* name) {
    return LinearBlock{.tensor = prefix + name, .rows = config.intermediate_size, .padded_rows = inner};
  };
  const ValueId gate_up =
      b.linear(prefix + "gate_up_proj", x, {rows("gate_proj"), rows("up_proj")}, /*bias=*/true, Parallel::kNone);
  const LinearBlock down{.tensor = prefix + "down_proj", .rows = config.hidden_size, .cols = config.intermediate_size};
  return b.linear(down.tensor, b.graph.op("silu_mul", {gate_up}), {down}, /*bias=*/true, Parallel::kNone, y);
}

}  // namespace

// Builds the tower. Each block computes:
//   h += proj(attention(rotate(qkv(norm(h)))));  h += down(silu(gate(norm(h))) · up(norm(h)))
// In most blocks a patch attends only to its window of the image. In the other blocks it attends to the whole image.
// The result is merger(norm(h)).
ValueId build_qwen2_5_tower(LayerBuilder& b, const VisionConfig& config) {
  const TowerInputs inputs = declare_tower_inputs(b, config);
  const ValueId windows =
      b.graph.input(std::string(vision_inputs::kWindowRanges), {DType::kInt32, {Symbol::kVisionRows, 2}});
  const ValueId token_order =
      b.graph.input(std::string(vision_inputs::kTokenOrder),
                    {DType::kInt32, {ir::Dim(Symbol::kVisionRows).divided_by(config.merged_patches())}});
  ValueId h = embed_patches(b, config, inputs.patches, /*bias=*/false);
  for (std::int64_t block = 0; block < config.depth; ++block) {
    b.graph.scope(fmt::format("blocks.{}", block));
    const std::string p = b.tensor(fmt::format("blocks.{}.", block));
    const ValueId ranges = config.full_attention[static_cast<std::size_t>(block)] ? inputs.image_ranges : windows;
    h = attend_patches(b, config, inputs, rms_norm(b, config, h, p + "norm1.weight"), ranges, h, p + "attn.");
    h = gated_mlp_of(b, config, rms_norm(b, config, h, p + "norm2.weight"), h, p + "mlp.");
  }
  b.graph.scope("merger");
  const ValueId normed = rms_norm(b, config, h, b.tensor("merger.ln_q.weight"));
  const ValueId merged =
      merger_mlp(b, config, merge_patches(b, config, normed), b.tensor("merger.mlp.0"), b.tensor("merger.mlp.2"));
  return b.graph.op("gather_rows", {merged, token_order});
}

}  // namespace tessera
