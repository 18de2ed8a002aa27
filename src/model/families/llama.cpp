#include "tessera/model/families/llama.h"

#include <fmt/format.h>

#include <iterator>

#include "tessera/model/config/sliding_windows.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/cache.h"
#include "tessera/model/layers/draft.h"
#include "tessera/model/layers/llama_body.h"
#include "tessera/model/layers/mlp.h"

namespace tessera {
namespace {

// Hugging Face's defaults (configuration_mistral.py, configuration_ministral3.py, configuration_qwen2.py,
// configuration_qwen3.py).
constexpr std::int64_t kLlamaDefaultSlidingWindow = 4096;
constexpr std::int64_t kDefaultMaxWindowLayers = 28;
constexpr std::int64_t kDefaultQwen3HeadDim = 128;
constexpr std::int64_t kDefaultMinistral3HeadDim = 128;
constexpr std::int64_t kDefaultLabels = 2;  // from configuration_utils.py

ir::ValueId mlp_of(LayerBuilder& b, const ModelConfig& config, const FeedForwardInput& in) {
  const std::string mlp = in.prefix + "mlp.";
  return gated_mlp(b, config, in.x, gate_up_blocks(config, mlp), mlp);
}

// Builds the body (Touvron et al., arXiv 2302.13971). Each layer computes:
//   h += o(attention(rope(qkv(norm(h)))));  h += down(act(gate(norm(h))) · up(norm(h)))
ir::ValueId build_llama_text_body(LayerBuilder& b, const ModelConfig& config) {
  return build_llama_body(b, config, qkv_blocks, [&](const FeedForwardInput& in) { return mlp_of(b, config, in); });
}

// Builds the next-token layer, which only the bundled model has. It uses DeepSeek's names for the tensors.
ir::ValueId build_llama_draft(LayerBuilder& b, const ModelConfig& config) {
  return next_token_layer(
      b, config, cache_groups(config), nextn_tensors(b, config),
      [&](ResidualStream& h, const AttentionInputs& shared, std::int64_t layer, const std::string& prefix) {
        add_llama_layer(b, shared, layer, h, prefix, qkv_blocks,
                        [&](const FeedForwardInput& in) { return mlp_of(b, shared.config, in); });
      });
}

Status read_llama(const Fields& fields, ModelConfig& config) {
  config.qkv_bias = config.o_bias = TRY(fields.optional_bool("attention_bias")).value_or(false);
  config.mlp_bias = TRY(fields.optional_bool("mlp_bias")).value_or(false);
  return set_full_attention(fields, config);
}

Status read_mistral(const Fields& fields, ModelConfig& config) {
  // An absent field means the default window, but null means that there is no window.
  const std::optional<std::int64_t> window = TRY(read_sliding_window(fields, kLlamaDefaultSlidingWindow));
  return set_sliding_windows(fields, window, /*first=*/0, config);
}

Status read_ministral3(const Fields& fields, ModelConfig& config) {
  return set_sliding_windows(fields, TRY(read_sliding_window(fields, std::nullopt)), /*first=*/0, config);
}

Status read_qwen_windows(const Fields& fields, ModelConfig& config) {
  std::optional<std::int64_t> window = TRY(read_sliding_window(fields, kLlamaDefaultSlidingWindow));
  if (!TRY(fields.optional_bool("use_sliding_window")).value_or(false)) window.reset();
  const std::optional<std::int64_t> first = TRY(fields.optional_int("max_window_layers", 0, ModelConfig::kMaxLayers));
  return set_sliding_windows(fields, window, first.value_or(kDefaultMaxWindowLayers), config);
}

Status read_qwen3(const Fields& fields, ModelConfig& config) {
  config.qkv_bias = config.o_bias = TRY(fields.optional_bool("attention_bias")).value_or(false);
  return read_qwen_windows(fields, config);
}

// Reads the labels. "id2label" of Hugging Face's files has one member for each label. Files state the number
// ("num_labels") only if the labels have no names. In that case the labels are called LABEL_0, LABEL_1, and so on.
Status read_labels(const Fields& fields, ModelConfig& config) {
  const Json* names = fields.find("id2label");
  if (names == nullptr) {
    const std::optional<std::int64_t> count = TRY(fields.optional_int("num_labels", 1, ModelConfig::kMaxLabels));
    config.num_labels = count.value_or(kDefaultLabels);
    for (std::int64_t i = 0; i < config.num_labels; ++i) config.label_names.push_back(fmt::format("LABEL_{}", i));
    return ok_status();
  }
  if (!names->is_object() || names->as_object().empty() || std::ssize(names->as_object()) > ModelConfig::kMaxLabels)
    return fields.wrong("id2label", fmt::format("an object with 1 to {} labels", ModelConfig::kMaxLabels));
  config.num_labels = std::ssize(names->as_object());
  for (std::int64_t i = 0; i < config.num_labels; ++i) {
    const Json* const name = names->find(std::to_string(i));
    if (name == nullptr || !name->is_string())
      return fields.wrong("id2label", fmt::format("a name, which is a string, for each of the labels \"0\" to \"{}\"",
                                                  config.num_labels - 1));
    config.label_names.push_back(name->as_string());
  }
  return ok_status();
}

Status read_label_scale(const Fields& fields, ModelConfig& config) {
  const Json* const type = fields.find("problem_type");
  if (type == nullptr || type->is_null() || *type == Json("single_label_classification")) return ok_status();
  if (*type == Json("multi_label_classification"))
    config.label_scale = LabelScale::kIndependent;
  else if (*type == Json("regression"))
    config.label_scale = LabelScale::kRaw;
  else
    return fields.wrong("problem_type", "single_label_classification, multi_label_classification or regression");
  return ok_status();
}

Status read_qwen3_classifier(const Fields& fields, ModelConfig& config) {
  TRY(read_labels(fields, config));
  TRY(read_label_scale(fields, config));
  return read_qwen3(fields, config);
}

}  // namespace

ModelFamily llama_family() {
  return {.architecture = "LlamaForCausalLM", .read_config = read_llama, .build_body = build_llama_text_body};
}

ModelFamily mistral_family() {
  return {.architecture = "MistralForCausalLM", .read_config = read_mistral, .build_body = build_llama_text_body};
}

ModelFamily ministral3_family() {
  const RopeConfig rope{.type = RopeType::kYarn,
                        .theta = 1e6,
                        .factor = 16,
                        .original_max_position_embeddings = 16384,
                        .mscale = 1,
                        .mscale_all_dim = 1,
                        .query_growth = 0.1};
  return {.architecture = "Ministral3ForCausalLM",
          .defaults = {.head_dim = kDefaultMinistral3HeadDim, .rms_norm_eps = 1e-5, .rope = rope},
          .query_growth = true,
          .read_config = read_ministral3,
          .build_body = build_llama_text_body};
}

ModelFamily qwen2_family() {
  return {.architecture = "Qwen2ForCausalLM",
          .defaults = {.qkv_bias = true},
          .read_config = read_qwen_windows,
          .build_body = build_llama_text_body};
}

ModelFamily qwen3_family() {
  return {.architecture = "Qwen3ForCausalLM",
          .defaults = {.head_dim = kDefaultQwen3HeadDim, .qk_norm = QkNorm::kHead},
          .read_config = read_qwen3,
          .build_body = build_llama_text_body,
          .build_draft = build_llama_draft};
}

ModelFamily qwen3_classifier_family() {
  ModelFamily family = qwen3_family();
  family.architecture = "Qwen3ForSequenceClassification";
  family.read_config = read_qwen3_classifier;
  return family;
}

}  // namespace tessera
