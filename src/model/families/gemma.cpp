#include "tessera/model/families/gemma.h"

#include <algorithm>
#include <optional>

#include "tessera/model/families/gemma_fields.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/mlp.h"
#include "tessera/model/layers/norm.h"

namespace tessera {
namespace {

using ir::ValueId;

// The rotation table of layers with full attention, and the table of layers with a window. If both rotations are equal,
// all layers use `full`. A table that no layer uses is absent.
struct LayerRopes {
  std::optional<ValueId> full;
  std::optional<ValueId> sliding;
};

LayerRopes declare_ropes(LayerBuilder& b, const ModelConfig& config, const TokenInputs& tokens) {
  LayerRopes ropes;
  if (!config.sliding_rope || std::ranges::count(config.sliding_windows, 0) > 0)
    ropes.full = rope_table(b, config, tokens);
  if (config.sliding_rope && config.any_sliding_window())
    ropes.sliding = rope_table(b, config, tokens, *config.sliding_rope, config.head_dim, "rope.sliding_inv_freq");
  return ropes;
}

// Builds the body (Gemma Team, arXiv 2408.00118 and 2503.19786). There is a norm before and after attention, and before
// and after the MLP. Each layer computes:
//   h += norm(o(attention(rope(qkv(norm(h))))));  h += norm(down(act(gate(norm(h))) · up(norm(h))))
ValueId build_gemma_body(LayerBuilder& b, const ModelConfig& config) {
  const TokenInputs tokens = declare_token_inputs(b, config);
  ResidualStream h(b, embed(b, config, tokens), config);
  const LayerRopes ropes = declare_ropes(b, config, tokens);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string p = b.begin_layer(layer);
    const std::string attn = p + "self_attn.";
    const std::string mlp = p + "mlp.";

    const bool slides = config.sliding_windows[static_cast<std::size_t>(layer)] > 0;
    const AttentionInputs in{
        .config = config, .tokens = tokens, .rope = slides && ropes.sliding ? *ropes.sliding : *ropes.full};
    const ValueId attended =
        self_attention(b, in, layer, h.norm(p + "input_layernorm.weight"), qkv_blocks(config, attn), attn);
    h.add(h.norm_of(attended, p + "post_attention_layernorm.weight"));
    const ValueId normed = h.norm(p + "pre_feedforward_layernorm.weight");
    h.add(h.norm_of(gated_mlp(b, config, normed, gate_up_blocks(config, mlp), mlp),
                    p + "post_feedforward_layernorm.weight"));
  }
  b.end_layers();
  return h.norm(b.tensor("norm.weight"));
}

}  // namespace

ModelFamily gemma2_family() {
  return {.architecture = "Gemma2ForCausalLM",
          .defaults = gemma2_defaults(),
          .read_config = read_gemma2_config,
          .build_body = build_gemma_body};
}

ModelFamily gemma3_family() {
  return {.architecture = "Gemma3ForCausalLM",
          .defaults = gemma3_defaults(),
          .read_config = read_gemma3_config,
          .build_body = build_gemma_body};
}

ModelFamily gemma3_nested_family() {
  ModelFamily family = gemma3_family();
  family.architecture = "Gemma3ForConditionalGeneration";
  family.defaults.tensor_prefix = "language_model.model.";  // the prefix in published files
  return family;
}

}  // namespace tessera
