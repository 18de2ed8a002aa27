#include "tessera/model/families/olmo2.h"

#include "tessera/model/config/sliding_windows.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/mlp.h"
#include "tessera/model/layers/norm.h"

namespace tessera {
namespace {

using ir::ValueId;

// Builds attention: x [T, hidden] → [T, hidden]. q and k are normed before the rotation. Each norm covers a whole row
// with all its heads.
ValueId olmo2_attention(LayerBuilder& b, const AttentionInputs& in, std::int64_t layer, ValueId x,
                        const std::string& p) {
  const ModelConfig& config = in.config;
  const std::vector<LinearBlock> blocks = qkv_blocks(config, p);
  const ValueId qkv = b.linear(p + "qkv_proj", x, blocks, config.qkv_bias, Parallel::kColumn);
  const LocalHeads local = local_heads(config, b.options());
  const std::int64_t kv_size = local.kv_heads * config.head_dim;
  const std::vector<ValueId> parts = b.graph.multi_op(
      "split", {qkv}, {{"sizes", std::vector<std::int64_t>{local.heads * config.head_dim, kv_size, kv_size}}});

  const ir::Attributes heads{{"head_dim", config.head_dim}};
  const ValueId q = whole_row_norm(b, config, parts[0], blocks[0], p + "q_norm.weight");
  const ValueId k = whole_row_norm(b, config, parts[1], blocks[1], p + "k_norm.weight");
  const ValueId rotated_q = b.graph.op("rotary", {q, in.rope}, heads);
  const ValueId rotated_k = b.graph.op("rotary", {k, in.rope}, heads);

  const KvCache cache = declare_kv_cache(b, config, in.tokens, layer, p);
  store_kv(b, cache, rotated_k, parts[2]);
  return output_projection(b, config, attend(b, config, cache, rotated_q), p);
}

// Builds the body (OLMo et al., arXiv 2501.00656). Norms come after attention and the MLP, not before them.
// Each layer computes:
//   h += norm(o(attention(rope(norm(q(h)), norm(k(h))), v(h))));  h += norm(down(act(gate(h)) · up(h)))
ValueId build_olmo2_body(LayerBuilder& b, const ModelConfig& config) {
  const TokenInputs tokens = declare_token_inputs(b, config);
  ResidualStream h(b, embed(b, config, tokens), config);
  const AttentionInputs shared{.config = config, .tokens = tokens, .rope = rope_table(b, config, tokens)};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string p = b.begin_layer(layer);
    const std::string mlp = p + "mlp.";
    h.add(h.norm_of(olmo2_attention(b, shared, layer, h.value(), p + "self_attn."),
                    p + "post_attention_layernorm.weight"));
    h.add(h.norm_of(gated_mlp(b, config, h.value(), gate_up_blocks(config, mlp), mlp),
                    p + "post_feedforward_layernorm.weight"));
  }
  b.end_layers();
  return h.norm(b.tensor("norm.weight"));
}

Status read_olmo2_config(const Fields& fields, ModelConfig& config) {
  config.qkv_bias = config.o_bias = TRY(fields.optional_bool("attention_bias")).value_or(false);
  return set_full_attention(fields, config);
}

}  // namespace

ModelFamily olmo2_family() {
  return {.architecture = "Olmo2ForCausalLM",
          .defaults = {.rms_norm_eps = 1e-5, .round_norms_once = true, .qk_norm = QkNorm::kRow},
          .read_config = read_olmo2_config,
          .build_body = build_olmo2_body};
}

}  // namespace tessera
