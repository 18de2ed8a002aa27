#include "tessera/model/layers/llama_body.h"

#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/norm.h"

namespace tessera {

void add_llama_layer(LayerBuilder& b, const AttentionInputs& shared, std::int64_t layer, ResidualStream& h,
                     const std::string& prefix, QkvBlocks qkv, const FeedForward& feed_forward) {
  const std::string attn = prefix + "self_attn.";
  const ir::ValueId normed = h.norm(prefix + "input_layernorm.weight");
  h.add(self_attention(b, shared, layer, normed, qkv(shared.config, attn), attn));
  const ir::ValueId x = h.norm(prefix + "post_attention_layernorm.weight");
  const ir::ValueId branch =
      feed_forward({.x = x, .slots = shared.tokens.padding_slots, .layer = layer, .prefix = prefix});
  h.add(with_deepstack(b, shared.config, shared.tokens, layer, branch));
}

ir::ValueId build_llama_body(LayerBuilder& b, const ModelConfig& config, QkvBlocks qkv,
                             const FeedForward& feed_forward) {
  const TokenInputs tokens = declare_token_inputs(b, config);
  ResidualStream h(b, embed(b, config, tokens), config);
  const AttentionInputs shared{.config = config,
                               .tokens = tokens,
                               .rope = rope_table(b, config, tokens),
                               .query_rope = query_rope_table(b, config, tokens)};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    add_llama_layer(b, shared, layer, h, b.begin_layer(layer), qkv, feed_forward);
  b.end_layers();
  return h.norm(b.tensor("norm.weight"));
}

}  // namespace tessera
