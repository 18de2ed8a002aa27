#include "tessera/model/families/phi3.h"

#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/mlp.h"
#include "tessera/model/layers/norm.h"
#include "tessera/model/sliding_windows.h"

namespace tessera {
namespace {

using ir::ValueId;

// Abdin et al., arXiv 2404.14219: Llama's layers, with q, k, v and gate, up in one tensor each, LongRoPE, and a
// rotation that may leave a part of each head as it is.
ValueId build_body(LayerBuilder& b, const ModelConfig& config) {
  const TokenInputs tokens = declare_token_inputs(b, config);
  ResidualStream h(b, embed(b, config, tokens), config);
  const AttentionInputs shared{.config = config, .tokens = tokens, .rope = rope_table(b, config, tokens)};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string p = b.begin_layer(layer);
    const std::string attn = p + "self_attn.";
    const std::string mlp = p + "mlp.";

    h.add(self_attention(b, shared, layer, h.norm(p + "input_layernorm.weight"), fused_qkv_blocks(config, attn), attn));
    h.add(gated_mlp(b, config, h.norm(p + "post_attention_layernorm.weight"), fused_gate_up_blocks(config, mlp), mlp));
  }
  b.end_layers();
  return h.norm(b.tensor("norm.weight"));
}

Status read_config(const Fields& fields, ModelConfig& config) {
  std::optional<std::int64_t> window = TRY(read_sliding_window(fields, std::nullopt));
  // A window that no text leaves is none, and attention without a window has faster kernels.
  if (window && *window >= config.max_position_embeddings) window.reset();
  return set_sliding_windows(fields, window, /*first=*/0, config);
}

}  // namespace

ModelFamily phi3_family() {
  return {.architecture = "Phi3ForCausalLM",
          .defaults = {.rms_norm_eps = 1e-5},
          .partial_rotary = true,
          .read_config = read_config,
          .build_body = build_body};
}

}  // namespace tessera
