#include "tessera/model/families/qwen_vl.h"

#include <fmt/format.h>

#include "tessera/model/families/llama.h"
#include "tessera/model/families/qwen3_moe.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/llama_body.h"
#include "tessera/model/layers/moe.h"
#include "tessera/model/vision/towers.h"

namespace tessera {
namespace {

// Hugging Face's default (configuration_qwen3_vl.py).
constexpr std::int64_t kDefaultDeepstackLevels = 3;

Status read_qwen2_vl(const Fields& fields, ModelConfig& config) {
  TRY(qwen2_family().read_config(fields, config));
  config.images = TRY(read_image_tokens(fields, config.vocab_size));
  return ok_status();
}

// Returns the number of deepstack levels (Bai et al., Qwen3-VL, arXiv 2511.21631). "deepstack_visual_indexes" lists
// layers of the tower. Each listed layer's output is added to the language model's hidden states: the first after layer
// 0 of the language model, the second after layer 1, and so on.
Result<std::int64_t> read_deepstack_levels(const Fields& fields, std::int64_t layers) {
  const Json* vision = fields.find("vision_config");
  if (vision == nullptr || !vision->is_object()) return fields.wrong("vision_config", "an object");
  const Json* levels = vision->find("deepstack_visual_indexes");
  const std::int64_t count = levels == nullptr    ? kDefaultDeepstackLevels
                             : levels->is_array() ? std::ssize(levels->as_array())
                                                  : -1;
  if (count >= 0 && count <= layers) return count;
  return fields.wrong("vision_config", fmt::format("an object whose deepstack_visual_indexes is a list of up to "
                                                   "num_hidden_layers ({}) layers of the tower",
                                                   layers));
}

Status read_qwen3_images(const Fields& fields, ModelConfig& config) {
  config.images = TRY(read_image_tokens(fields, config.vocab_size));
  config.images->deepstack_levels = TRY(read_deepstack_levels(fields, config.num_hidden_layers));
  return ok_status();
}

Status read_qwen3_vl(const Fields& fields, ModelConfig& config) {
  TRY(qwen3_family().read_config(fields, config));
  return read_qwen3_images(fields, config);
}

// Reads the config. The weights of the chosen experts are always divided by their sum, as in transformers' router.
Status read_qwen3_vl_moe(const Fields& fields, ModelConfig& config) {
  TRY(qwen3_moe_family().read_config(fields, config));
  config.moe->normalise = true;
  return read_qwen3_images(fields, config);
}

ir::ValueId build_qwen3_vl_moe_body(LayerBuilder& b, const ModelConfig& config) {
  return build_llama_body(b, config, qkv_blocks, [&](const FeedForwardInput& in) {
    const std::string mlp = in.prefix + "mlp.";
    MoeTensors tensors = separate_experts(mlp);
    tensors.experts.layout = ExpertLayout::kTransposed;
    return moe_or_mlp(b, config, in.layer, in.x, in.slots, tensors, mlp);
  });
}

// Adds the vision tower, which the dense and the mixture models of Qwen3-VL share.
void add_qwen3_tower(ModelFamily& family) {
  family.defaults.tensor_prefix = "model.language_model.";
  family.defaults.rope.sections = {24, 20, 20};
  family.defaults.rope.interleaved_sections = true;
  family.defaults.vision = VisionConfig{
      .kind = VisionConfig::Kind::kQwen3, .tensor_prefix = "model.visual.", .deepstack_blocks = {8, 16, 24}};
  family.build_tower = build_qwen3_tower;
}

}  // namespace

// The defaults are those of configuration_qwen2_vl.py.
ModelFamily qwen2_vl_family() {
  ModelFamily family = qwen2_family();
  family.architecture = "Qwen2VLForConditionalGeneration";
  family.defaults.rope.sections = {16, 24, 24};
  family.defaults.vision = VisionConfig{.kind = VisionConfig::Kind::kQwen2,
                                        .tensor_prefix = "visual.",
                                        .depth = 32,
                                        .hidden_size = 1280,
                                        .num_heads = 16,
                                        .patch_size = 14,
                                        .out_hidden_size = 3584};
  family.read_config = read_qwen2_vl;
  family.build_tower = build_qwen2_tower;
  return family;
}

ModelFamily qwen2_5_vl_family() {
  ModelFamily family = qwen2_family();
  family.architecture = "Qwen2_5_VLForConditionalGeneration";
  family.defaults.rope.sections = {16, 24, 24};
  family.defaults.vision = VisionConfig{.kind = VisionConfig::Kind::kQwen25, .tensor_prefix = "visual."};
  family.read_config = read_qwen2_vl;
  family.build_tower = build_qwen2_5_tower;
  return family;
}

ModelFamily qwen3_vl_family() {
  ModelFamily family = qwen3_family();
  family.architecture = "Qwen3VLForConditionalGeneration";
  family.read_config = read_qwen3_vl;
  add_qwen3_tower(family);
  return family;
}

// The defaults are those of configuration_qwen3_vl_moe.py.
ModelFamily qwen3_vl_moe_family() {
  ModelFamily family = qwen3_moe_family();
  family.architecture = "Qwen3VLMoeForConditionalGeneration";
  family.defaults.moe = MoeConfig{.num_experts = 60, .experts_per_token = 4, .intermediate_size = 1408};
  family.read_config = read_qwen3_vl_moe;
  family.build_body = build_qwen3_vl_moe_body;
  add_qwen3_tower(family);
  return family;
}

}  // namespace tessera
