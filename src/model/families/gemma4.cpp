#include "tessera/model/families/gemma4.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "tessera/model/config/sliding_windows.h"
#include "tessera/model/families/gemma_fields.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/layer_inputs.h"
#include "tessera/model/layers/mlp.h"
#include "tessera/model/layers/moe.h"
#include "tessera/model/layers/norm.h"

namespace tessera {
namespace {

using ir::ValueId;

bool slides(const ModelConfig& config, std::int64_t layer) {
  return config.sliding_windows[static_cast<std::size_t>(layer)] > 0;
}

// Builds attention layers. For layers with a window, keeps their rotation table and the KV cache that was declared
// last. For layers with full attention, keeps another table and another cache in the same way.
class Attention {
 public:
  Attention(LayerBuilder& b, const ModelConfig& config, const TokenInputs& tokens)
      : b_(b), config_(config), tokens_(tokens) {}

  // Builds the layer's attention of x [T, hidden], including the output projection; returns [T, hidden].
  ValueId operator()(const ModelConfig& sizes, std::int64_t layer, ValueId x, const std::string& p) {
    const bool shares = gemma4_layer_shares_cache(config_, layer);
    const std::vector<LinearBlock> all = qkv_blocks(sizes, p);
    std::vector<LinearBlock> blocks{all[0]};
    if (!shares) blocks.push_back(all[1]);
    if (!shares && !keys_are_values(layer)) blocks.push_back(all[2]);
    const char* name = shares ? "q_proj" : keys_are_values(layer) ? "qk_proj" : "qkv_proj";
    const ValueId projected = b_.linear(p + name, x, blocks, config_.qkv_bias, Parallel::kColumn);

    const LocalHeads local = local_heads(sizes, b_.options());
    const std::int64_t kv_size = local.kv_heads * sizes.head_dim;
    std::vector<std::int64_t> parts(blocks.size(), kv_size);
    parts[0] = local.heads * sizes.head_dim;
    const std::vector<ValueId> qkv =
        blocks.size() == 1 ? std::vector{projected} : b_.graph.multi_op("split", {projected}, {{"sizes", parts}});
    if (!b_.graph.ok()) return x;

    const ValueId rope = rope_of(layer);
    const ValueId q = rotate(sizes, normalise(sizes, qkv[0], p + "q_norm.weight"), rope);
    if (!shares) {
      const ValueId k = rotate(sizes, normalise(sizes, qkv[1], p + "k_norm.weight"), rope);
      const ValueId v = b_.graph.op("head_norm", {qkv.back(), b_.ones(sizes.head_dim)}, norm_attributes(sizes));
      const KvCache cache = declare_kv_cache(b_, sizes, tokens_, layer, p);
      store_kv(b_, cache, k, v);
      newest_[slides(config_, layer) ? 0 : 1] = cache;
    }
    return output_projection(b_, sizes, attend(b_, sizes, *newest_[slides(config_, layer) ? 0 : 1], q), p);
  }

 private:
  bool keys_are_values(std::int64_t layer) const { return config_.gemma4->keys_are_values && !slides(config_, layer); }

  ValueId normalise(const ModelConfig& sizes, ValueId x, const std::string& weight) {
    return b_.graph.op("head_norm", {x, b_.norm_weight(weight, sizes.head_dim)}, norm_attributes(sizes));
  }
  ValueId rotate(const ModelConfig& sizes, ValueId x, ValueId rope) {
    return b_.graph.op("rotary", {x, rope}, {{"head_dim", sizes.head_dim}});
  }
  ValueId rope_of(std::int64_t layer) {
    std::optional<ValueId>& rope = ropes_[slides(config_, layer) ? 0 : 1];
    if (!rope && slides(config_, layer)) {
      rope = rope_table(b_, config_, tokens_, *config_.sliding_rope, config_.head_dim, "rope.sliding_inv_freq");
    } else if (!rope) {
      rope = rope_table(b_, config_, tokens_, config_.rope, config_.gemma4->global_head_dim, "rope.inv_freq");
    }
    return *rope;
  }

  LayerBuilder& b_;
  const ModelConfig& config_;
  const TokenInputs& tokens_;
  std::optional<ValueId> ropes_[2];   // [0]: for layers with a window; [1]: for layers with full attention
  std::optional<KvCache> newest_[2];  // [0] and [1] as above: the KV cache of the last unshared layer
};

// Returns the attributes of embedding look-ups. Both embedding tables use the padding token's row for placeholders.
ir::Attributes id_attributes(const ModelConfig& config) {
  if (config.gemma4->placeholders.empty()) return {};
  const std::int64_t padding = config.pad_token_id.value_or(TokenId(0)).value();
  return {{"by", padding}, {"replaced", config.gemma4->placeholders}};
}

// Adds experts beside the MLP. The router reads the residual stream through a norm of its own. The outputs of the MLP
// and of the experts are normed separately, then added.
ValueId add_mixture(LayerBuilder& b, const ModelConfig& config, const TokenInputs& tokens, ResidualStream& h,
                    ValueId dense, const std::string& p) {
  const ValueId scores = b.graph.op("scale", {h.norm_of(h.value(), p + "router.scale")},
                                    {{"factor", 1.0 / std::sqrt(static_cast<double>(config.hidden_size))}});
  const Routing routing =
      route_tokens(b, config, b.rows_of_all_ranks(scores), b.rows_of_all_ranks(tokens.padding_slots),
                   {.weight = p + "router.proj", .expert_scale = p + "router.per_expert_scale"});
  const ValueId x = h.norm_of(h.value(), p + "pre_feedforward_layernorm_2.weight");
  const ValueId experts = b.sums_of_own_rows(add_experts(b, config, b.rows_of_all_ranks(x), routing,
                                                         {.prefix = p + "experts.", .layout = ExpertLayout::kStacked}));
  if (b.options().tp_size > 1) b.graph.op("all_reduce", {experts});
  return b.graph.multi_op("add_rms_norm",
                          {h.norm_of(dense, p + "post_feedforward_layernorm_1.weight"),
                           h.norm_of(experts, p + "post_feedforward_layernorm_2.weight"),
                           b.norm_weight(p + "post_feedforward_layernorm.weight", config.hidden_size)},
                          norm_attributes(config))[0];
}

// Builds the body. Each layer computes:
//   h += norm(o(attention(rope(norm(q(x))), rope(norm(k(x))), norm(v(x))))), x = norm(h)
//   h += norm(down(act(gate(x)) · up(x))), x = norm(h); mixtures add the experts' output to the MLP's
//   h += norm(projection(act(gate(h)) · the layer's own embeddings)), if the model has per-layer embeddings
//   h *= a scalar
ValueId build_gemma4_body(LayerBuilder& b, const ModelConfig& config) {
  const TokenInputs tokens = declare_token_inputs(b, config);
  const ValueId ids = resolve_ids(b, tokens, id_attributes(config));
  const ValueId embedded = embed(b, config, tokens, ids);
  const std::vector<ValueId> own = layer_inputs(b, config, ids, embedded);
  ResidualStream h(b, embedded, config);
  Attention attention(b, config, tokens);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string p = b.begin_layer(layer);
    const std::string mlp = p + "mlp.";
    const ModelConfig sizes = gemma4_layer_config(config, layer);

    const ValueId attended = attention(sizes, layer, h.norm(p + "input_layernorm.weight"), p + "self_attn.");
    h.add(h.norm_of(attended, p + "post_attention_layernorm.weight"));

    const ValueId normed = h.norm(p + "pre_feedforward_layernorm.weight");
    const ValueId dense = gated_mlp(b, sizes, normed, gate_up_blocks(sizes, mlp), mlp);
    h.add(config.moe ? add_mixture(b, config, tokens, h, dense, p)
                     : h.norm_of(dense, p + "post_feedforward_layernorm.weight"));
    if (!own.empty()) h.add(layer_input_branch(b, config, h, own[static_cast<std::size_t>(layer)], p));
    h.scale(b.norm_weight(p + "layer_scalar", 1));
  }
  b.end_layers();
  return h.norm(b.tensor("norm.weight"));
}

}  // namespace

bool gemma4_layer_shares_cache(const ModelConfig& config, std::int64_t layer) {
  return layer >= config.num_hidden_layers - config.gemma4->num_shared_layers;
}

ModelConfig gemma4_layer_config(const ModelConfig& config, std::int64_t layer) {
  ModelConfig of_layer = config;
  if (!slides(config, layer)) {
    of_layer.head_dim = config.gemma4->global_head_dim;
    of_layer.num_key_value_heads = config.gemma4->global_key_value_heads;
  }
  if (config.gemma4->double_wide_mlp && gemma4_layer_shares_cache(config, layer)) of_layer.intermediate_size *= 2;
  return of_layer;
}

ModelFamily gemma4_family() {
  return {.architecture = "Gemma4ForCausalLM",
          .defaults = gemma4_defaults(),
          .read_config = read_gemma4_config,
          .build_body = build_gemma4_body};
}

ModelFamily gemma4_nested_family() {
  ModelFamily family = gemma4_family();
  family.architecture = "Gemma4ForConditionalGeneration";
  family.defaults.tensor_prefix = "model.language_model.";
  family.read_config = read_gemma4_nested_config;
  return family;
}

}  // namespace tessera
