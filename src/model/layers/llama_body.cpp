#include "tessera/model/layers/llama_body.h"

#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/norm.h"

namespace tessera {

ir::ValueId build_llama_body(LayerBuilder& b, const ModelConfig& config, QkvBlocks qkv,
                             const FeedForward& feed_forward) {
  const TokenInputs tokens = declare_token_inputs(b, config);
  ResidualStream h(b, embed(b, config, tokens), config);
  const AttentionInputs shared{.config = config, .tokens = tokens, .rope = rope_table(b, config, tokens)};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string p = b.begin_layer(layer);
    const std::string attn = p + "self_attn.";
    h.add(self_attention(b, shared, layer, h.norm(p + "input_layernorm.weight"), qkv(config, attn), attn));
    const ir::ValueId x = h.norm(p + "post_attention_layernorm.weight");
    const ir::ValueId branch = feed_forward({.x = x, .slots = tokens.padding_slots, .layer = layer, .prefix = p});
    h.add(with_deepstack(b, config, tokens, layer, branch));
  }
  b.end_layers();
  return h.norm(b.tensor("norm.weight"));
}

}  // namespace tessera
