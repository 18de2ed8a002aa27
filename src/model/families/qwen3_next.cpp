#include "tessera/model/families/qwen3_next.h"

#include <fmt/format.h>

#include "tessera/model/config/moe_fields.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/cache.h"
#include "tessera/model/layers/delta_net.h"
#include "tessera/model/layers/draft.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/moe.h"
#include "tessera/model/layers/norm.h"
#include "tessera/model/vision/towers.h"
#include "tessera/ops/recurrent/causal_conv.h"

namespace tessera {
namespace {

using ir::ValueId;

// The layout of tensors in the checkpoints of Qwen3-Next or of Qwen3.5. Both generations compute the same function, but
// store tensors differently.
struct Tensors {
  DeltaNetBlocks (*net_blocks)(LayerBuilder& b, const ModelConfig& config, const std::string& prefix);
  ExpertLayout experts;
};

// Builds the layer's MLP, or its experts together with the shared expert, and applies it to x.
ValueId feed_forward(LayerBuilder& b, const ModelConfig& config, std::int64_t layer, ValueId x, ValueId slots,
                     const Tensors& tensors, const std::string& prefix) {
  MoeTensors experts = separate_experts(prefix);
  experts.experts.layout = tensors.experts;
  experts.shared = prefix + "shared_expert.";
  return moe_or_mlp(b, config, layer, x, slots, experts, prefix);
}

// Adds a layer:
//   h += mix(norm(h));  h += mlp(norm(h))
// mix is a gated delta net, or o(attention(rope(norm(q)), rope(norm(k)), v) · sigmoid(gate)).
void add_layer(LayerBuilder& b, const AttentionInputs& shared, std::int64_t layer, ResidualStream& h,
               const std::string& prefix, const Tensors& tensors) {
  const ModelConfig& config = shared.config;
  const ValueId x = h.norm(prefix + "input_layernorm.weight");
  if (config.delta_net->layers[static_cast<std::size_t>(layer)]) {
    const std::string net = prefix + "linear_attn.";
    h.add(delta_net(b, config, layer, x, tensors.net_blocks(b, config, net), net));
  } else {
    const std::string attn = prefix + "self_attn.";
    h.add(output_projection(b, config, gated_rope_attention(b, shared, layer, x, attn), attn));
  }
  const ValueId y = h.norm(prefix + "post_attention_layernorm.weight");
  h.add(feed_forward(b, config, layer, y, shared.tokens.padding_slots, tensors, prefix + "mlp."));
}

ValueId build_layers(LayerBuilder& b, const ModelConfig& config, const Tensors& tensors) {
  const TokenInputs tokens = declare_token_inputs(b, config);
  ResidualStream h(b, embed(b, config, tokens), config);
  const AttentionInputs shared{.config = config, .tokens = tokens, .rope = rope_table(b, config, tokens)};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    add_layer(b, shared, layer, h, b.begin_layer(layer), tensors);
  b.end_layers();
  return h.norm(b.tensor("norm.weight"));
}

// Builds the next-token layer. The layer's tensors have the same names in both generations.
ValueId build_qwen3_next_draft(LayerBuilder& b, const ModelConfig& config, const Tensors& tensors) {
  return next_token_layer(b, config, cache_groups(config),
                          {.embedding_norm = "mtp.pre_fc_norm_embedding.weight",
                           .hidden_norm = "mtp.pre_fc_norm_hidden.weight",
                           .projection = "mtp.fc",
                           .final_norm = "mtp.norm.weight"},
                          [&](ResidualStream& h, const AttentionInputs& shared, std::int64_t layer,
                              const std::string&) { add_layer(b, shared, layer, h, "mtp.layers.0.", tensors); });
}

constexpr Tensors kNextTensors{.net_blocks = joint_delta_net_blocks, .experts = ExpertLayout::kSeparate};
constexpr Tensors k35Tensors{.net_blocks = delta_net_blocks, .experts = ExpertLayout::kStacked};

ValueId build_qwen3_next(LayerBuilder& b, const ModelConfig& config) { return build_layers(b, config, kNextTensors); }
ValueId build_qwen3_5(LayerBuilder& b, const ModelConfig& config) { return build_layers(b, config, k35Tensors); }
ValueId build_next_draft(LayerBuilder& b, const ModelConfig& config) {
  return build_qwen3_next_draft(b, config, kNextTensors);
}
ValueId build_3_5_draft(LayerBuilder& b, const ModelConfig& config) {
  return build_qwen3_next_draft(b, config, k35Tensors);
}

// Reads which layers are delta nets. "layer_types" lists them. Without that list, every n-th layer has attention, with
// n = "full_attention_interval", and all others are delta nets.
Status read_layers(const Fields& fields, const ModelConfig& config, DeltaNetConfig& net) {
  const std::optional<std::int64_t> interval =
      TRY(fields.optional_int("full_attention_interval", 1, ModelConfig::kMaxLayers));
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    net.layers.push_back((layer + 1) % interval.value_or(4) != 0);
  const Json* types = fields.find("layer_types");
  if (types == nullptr) return ok_status();

  const std::string accepted = fmt::format(
      "a list of num_hidden_layers ({}) times \"linear_attention\" or \"full_attention\"", config.num_hidden_layers);
  if (!types->is_array() || types->as_array().size() != net.layers.size()) return fields.wrong("layer_types", accepted);
  for (std::size_t layer = 0; layer < net.layers.size(); ++layer) {
    const Json& type = types->as_array()[layer];
    if (!type.is_string()) return fields.wrong("layer_types", accepted);
    const bool is_net = type.as_string() == "linear_attention";
    if (!is_net && type.as_string() != "full_attention") return fields.unsupported("layer_types", accepted);
    if (interval && is_net != net.layers[layer])
      return fields.wrong("layer_types",
                          fmt::format("\"full_attention\" in every {}th layer, as full_attention_interval "
                                      "says, and \"linear_attention\" in the others",
                                      *interval));
    net.layers[layer] = is_net;
  }
  return ok_status();
}

Status read_delta_net(const Fields& fields, ModelConfig& config) {
  using C = ModelConfig;
  DeltaNetConfig net = *config.delta_net;
  const auto read = [&](const char* key, std::int64_t most, std::int64_t& size) -> Status {
    size = TRY(fields.optional_int(key, 1, most)).value_or(size);
    return ok_status();
  };
  TRY(read("linear_num_key_heads", C::kMaxHeads, net.key_heads));
  TRY(read("linear_num_value_heads", C::kMaxHeads, net.value_heads));
  TRY(read("linear_key_head_dim", C::kMaxHeadDim, net.key_head_dim));
  TRY(read("linear_value_head_dim", C::kMaxHeadDim, net.value_head_dim));
  TRY(read("linear_conv_kernel_dim", kMaxConvTaps, net.conv_size));
  if (net.conv_size < 2) return fields.unsupported("linear_conv_kernel_dim", fmt::format("2 to {}", kMaxConvTaps));
  if (net.value_heads % net.key_heads != 0)
    return fields.wrong("linear_num_value_heads",
                        fmt::format("a multiple of linear_num_key_heads ({})", net.key_heads));
  if (net.value_heads * net.value_head_dim > C::kMaxQuerySize || net.key_heads * net.key_head_dim > C::kMaxQuerySize)
    return fields.wrong("linear_num_value_heads",
                        fmt::format("a number whose product with the head's size is at most {}", C::kMaxQuerySize));
  TRY(read_layers(fields, config, net));
  config.delta_net = std::move(net);
  return ok_status();
}

Status read_qwen3_next_config(const Fields& fields, ModelConfig& config) {
  config.qkv_bias = config.o_bias = TRY(fields.optional_bool("attention_bias")).value_or(false);
  if (!TRY(fields.optional_bool("attn_output_gate")).value_or(true))
    return fields.unsupported("attn_output_gate", "true");
  if (config.hidden_act != Activation::kSilu) return fields.unsupported("hidden_act", "silu");
  config.sliding_windows.assign(static_cast<std::size_t>(config.num_hidden_layers), 0);
  return read_delta_net(fields, config);
}

// Reads the config of a model in which every layer has experts.
Status read_moe_config(const Fields& fields, ModelConfig& config) {
  TRY(read_qwen3_next_config(fields, config));
  MoeConfig& moe = *config.moe;
  TRY(read_experts(fields, {.experts = "num_experts", .experts_alias = "num_local_experts"}, moe));
  moe.shared_intermediate_size =
      TRY(fields.optional_int("shared_expert_intermediate_size", 1, ModelConfig::kMaxIntermediateSize))
          .value_or(moe.shared_intermediate_size);
  moe.layers.assign(static_cast<std::size_t>(config.num_hidden_layers), true);
  return ok_status();
}

// Reads the config of a model in which some layers may have an MLP instead of experts.
Status read_next_config(const Fields& fields, ModelConfig& config) {
  TRY(read_moe_config(fields, config));
  config.moe->normalise = TRY(fields.optional_bool("norm_topk_prob")).value_or(true);
  return read_sparse_step(fields, config);
}

// Reads the config of a checkpoint with a vision tower.
template <Status (*kReadText)(const Fields& fields, ModelConfig& config)>
Status with_images(const Fields& fields, ModelConfig& config) {
  TRY(kReadText(fields, config));
  if (fields.find("vision_config") != nullptr) config.images = TRY(read_image_tokens(fields, config.vocab_size));
  return ok_status();
}

// Returns Hugging Face's defaults (configuration_qwen3_next.py, configuration_qwen3_5.py,
// configuration_qwen3_5_moe.py).
ModelConfig defaults() {
  return {.head_dim = 256,
          .unit_offset_norms = true,
          .qk_norm = QkNorm::kHead,
          .attention_gate = true,
          .rope = {.partial_rotary_factor = 0.25},
          .delta_net = DeltaNetConfig{
              .key_heads = 16, .value_heads = 32, .key_head_dim = 128, .value_head_dim = 128, .conv_size = 4}};
}

ModelConfig moe_defaults(std::int64_t experts, std::int64_t experts_per_token) {
  ModelConfig config = defaults();
  config.intermediate_size = 5632;  // the size of MLPs, which only Qwen3-Next has among these mixtures
  config.moe = MoeConfig{.num_experts = experts,
                         .experts_per_token = experts_per_token,
                         .intermediate_size = 512,
                         .shared_intermediate_size = 512,
                         .shared_gate = true,
                         .normalise = true};
  return config;
}

// Adds the vision tower, which is the same as in Qwen3-VL.
void add_tower(ModelFamily& family) {
  family.defaults.tensor_prefix = "model.language_model.";
  family.defaults.rope.sections = {11, 11, 10};
  family.defaults.rope.interleaved_sections = true;
  family.defaults.vision = VisionConfig{.kind = VisionConfig::Kind::kQwen3, .tensor_prefix = "model.visual."};
  family.build_tower = build_qwen3_tower;
}

}  // namespace

ModelFamily qwen3_next_family() {
  return {.architecture = "Qwen3NextForCausalLM",
          .defaults = moe_defaults(512, 10),
          .partial_rotary = true,
          .read_config = read_next_config,
          .build_body = build_qwen3_next,
          .build_draft = build_next_draft};
}

ModelFamily qwen3_5_text_family() {
  return {.architecture = "Qwen3_5ForCausalLM",
          .defaults = defaults(),
          .partial_rotary = true,
          .read_config = read_qwen3_next_config,
          .build_body = build_qwen3_5,
          .build_draft = build_3_5_draft};
}

ModelFamily qwen3_5_family() {
  ModelFamily family = qwen3_5_text_family();
  family.architecture = "Qwen3_5ForConditionalGeneration";
  add_tower(family);
  family.read_config = with_images<read_qwen3_next_config>;
  return family;
}

ModelFamily qwen3_5_moe_text_family() {
  return {.architecture = "Qwen3_5MoeForCausalLM",
          .defaults = moe_defaults(256, 8),
          .partial_rotary = true,
          .read_config = read_moe_config,
          .build_body = build_qwen3_5,
          .build_draft = build_3_5_draft};
}

ModelFamily qwen3_5_moe_family() {
  ModelFamily family = qwen3_5_moe_text_family();
  family.architecture = "Qwen3_5MoeForConditionalGeneration";
  add_tower(family);
  family.read_config = with_images<read_moe_config>;
  return family;
}

}  // namespace tessera
