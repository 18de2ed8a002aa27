#include "tessera/model/gguf/gguf_architectures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "tessera/model/gguf/gguf_gemma4.h"
#include "tessera/model/gguf/gguf_rope.h"
#include "tessera/model/gguf/gguf_texts.h"
#include "tessera/model/gguf/projector_types.h"
#include "tessera/model/weights/stored_tensor.h"

namespace tessera {
namespace {

using Form = TensorForm;

void set_architecture(ConfigWriter& writer, const char* name) {
  Json::Array names;
  names.emplace_back(name);
  writer.set("architectures", std::move(names));
}

// Sets a boolean member, which says whether the first layer has the tensor.
void set_if_there(ConfigWriter& writer, std::string_view tensor, const char* member) {
  writer.set(member, writer.has_tensor(fmt::format("blk.0.{}", tensor)));
}

constexpr TensorNameRule kLlamaNames[] = {
    {"attn_q.weight", "self_attn.q_proj.weight", Form::kQueryRows},
    {"attn_q.bias", "self_attn.q_proj.bias", Form::kQueryRows},
    {"attn_k.weight", "self_attn.k_proj.weight", Form::kKeyRows},
    {"attn_k.bias", "self_attn.k_proj.bias", Form::kKeyRows},
    {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight"},
    {"ffn_gate_exps.weight", "block_sparse_moe.experts.{}.w1.weight", Form::kExperts},
    {"ffn_up_exps.weight", "block_sparse_moe.experts.{}.w3.weight", Form::kExperts},
    {"ffn_down_exps.weight", "block_sparse_moe.experts.{}.w2.weight", Form::kExperts},
};

constexpr const char* kTemperature = "attention.temperature_scale";

// Checks that a number that the engine does not support is 0 or absent.
Status check_zero(const ConfigWriter& writer, std::string_view name) {
  if (TRY(writer.optional_number(name)).value_or(0) == 0) return ok_status();
  return unimplemented(writer.wrong(name, "0, or no such key").message());
}

// Writes the config of Llama, Mistral or Mixtral.
Status write_llama(ConfigWriter& writer) {
  const std::int64_t experts = TRY(writer.optional_integer("expert_count")).value_or(0);
  set_architecture(writer, experts > 0 ? "MixtralForCausalLM" : "LlamaForCausalLM");
  set_if_there(writer, "attn_q.bias", "attention_bias");
  set_if_there(writer, "ffn_gate.bias", "mlp_bias");
  TRY(check_zero(writer, "attention.clamp_kqv"));
  TRY(check_zero(writer, kTemperature));
  if (experts == 0) return ok_status();
  writer.set("num_local_experts", experts, "expert_count");
  return writer.copy_integer("expert_used_count", "num_experts_per_tok");
}

// Writes the config of Mistral 3. Queries of Ministral 3 grow with the position. YaRN's original context says how fast.
Status write_mistral3(ConfigWriter& writer) {
  const double growth = TRY(writer.optional_number(kTemperature)).value_or(0);
  if (growth == 0) return write_llama(writer);
  TRY(check_zero(writer, "attention.clamp_kqv"));
  TRY(check_zero(writer, "expert_count"));
  set_architecture(writer, "Ministral3ForCausalLM");
  Json rope = *writer.config().find("rope_parameters");
  if (*rope.find("rope_type") != Json("yarn"))
    return unimplemented(writer.wrong("rope.scaling.type", fmt::format("yarn, beside {}", kTemperature)).message());
  rope.set("llama_4_scaling_beta", growth);
  writer.set("rope_parameters", std::move(rope));
  return ok_status();
}

Status write_qwen2(ConfigWriter& writer) {
  set_architecture(writer, "Qwen2ForCausalLM");
  return ok_status();
}

Status write_qwen3(ConfigWriter& writer) {
  set_architecture(writer, "Qwen3ForCausalLM");
  set_if_there(writer, "attn_q.bias", "attention_bias");
  return ok_status();
}

constexpr TensorNameRule kQwen3Names[] = {{"cls.output.weight", "/score.weight", Form::kYesLessNo}};

// Checks the head of a reranker. llama.cpp's converter keeps two rows of Qwen3-Reranker's head, one for "yes" and one
// for "no". The probability of "yes" is the score.
Status check_reranker(const ConfigWriter& writer) {
  constexpr const char* kHead = "cls.output.weight";
  const GgufTensor* head = writer.model().find_tensor(kHead);
  const std::int64_t hidden = TRY(writer.integer("embedding_length"));
  if (head == nullptr || head->shape.size() != 2 || head->shape[0] > 2 || head->shape[1] != hidden)
    return invalid_argument(fmt::format(
        "{}: tensor {} is {}; accepted: a matrix of 1 or 2 rows of {}, because {} says that the model is a reranker",
        writer.model().path(), kHead, head == nullptr ? "missing" : shape_text(head->shape), hidden,
        writer.key("pooling_type")));
  const std::string key = writer.key("classifier.output_labels");
  const GgufValue* value = writer.model().find(key);
  if (head->shape[0] == 1) return ok_status();
  const auto labels = value != nullptr ? value->strings() : std::nullopt;
  if (labels && std::ranges::equal(*labels, std::array<std::string_view, 2>{"yes", "no"})) return ok_status();
  return unimplemented(writer.model().wrong(key, R"(["yes", "no"])").message());
}

// Writes the config of a language model, or of a reranker with one label.
Status write_qwen3_or_reranker(ConfigWriter& writer) {
  TRY(write_qwen3(writer));
  if (TRY(writer.optional_integer("pooling_type")).value_or(0) != kGgufRankPooling) return ok_status();
  TRY(check_reranker(writer));
  set_architecture(writer, "Qwen3ForSequenceClassification");
  writer.set("num_labels", 1);
  return ok_status();
}

Status write_experts(ConfigWriter& writer, const char* count) {
  TRY(writer.copy_integer("expert_count", count));
  TRY(writer.copy_integer("expert_used_count", "num_experts_per_tok"));
  return writer.copy_integer("expert_feed_forward_length", "moe_intermediate_size");
}

Status write_qwen3moe(ConfigWriter& writer) {
  set_architecture(writer, "Qwen3MoeForCausalLM");
  writer.set("norm_topk_prob", true);
  // The config must have a size of MLPs, although these models have no MLPs. If the file has no such size, the size of
  // the experts is written instead.
  if (writer.config().find("intermediate_size") == nullptr)
    writer.set("intermediate_size", TRY(writer.integer("expert_feed_forward_length")), "expert_feed_forward_length");
  return write_experts(writer, "num_experts");
}

constexpr TensorNameRule kQwen35Names[] = {
    {"output_norm.weight", "/model.norm.weight", Form::kLessOne},
    {"attn_norm.weight", "input_layernorm.weight", Form::kLessOne},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", Form::kLessOne},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", Form::kLessOne},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", Form::kLessOne},
    {"attn_qkv.weight", "linear_attn.in_proj_qkv.weight", Form::kMixedRows},
    {"attn_gate.weight", "linear_attn.in_proj_z.weight", Form::kValueRows},
    {"ssm_alpha.weight", "linear_attn.in_proj_a.weight", Form::kValueHeads},
    {"ssm_beta.weight", "linear_attn.in_proj_b.weight", Form::kValueHeads},
    {"ssm_a", "linear_attn.A_log", Form::kDecay},
    {"ssm_dt.bias", "linear_attn.dt_bias", Form::kValueHeads},
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight", Form::kConvolution},
    {"ssm_norm.weight", "linear_attn.norm.weight"},
    {"ssm_out.weight", "linear_attn.out_proj.weight", Form::kValueColumns},
    {"ffn_gate_exps.weight", "mlp.experts.{}.gate_proj.weight", Form::kExperts},
    {"ffn_up_exps.weight", "mlp.experts.{}.up_proj.weight", Form::kExperts},
    {"ffn_gate_up_exps.weight", "mlp.experts.{}.", Form::kGateUpExperts},
    {"ffn_down_exps.weight", "mlp.experts.{}.down_proj.weight", Form::kExperts},
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"},
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", Form::kRow},
    {"nextn.eh_proj.weight", "/mtp.fc.weight"},
    {"nextn.enorm.weight", "/mtp.pre_fc_norm_embedding.weight", Form::kLessOne},
    {"nextn.hnorm.weight", "/mtp.pre_fc_norm_hidden.weight", Form::kLessOne},
    {"nextn.shared_head_norm.weight", "/mtp.norm.weight", Form::kLessOne},
};

Status write_delta_net(ConfigWriter& writer) {
  TRY(writer.copy_integer("ssm.group_count", "linear_num_key_heads"));
  TRY(writer.copy_integer("ssm.state_size", "linear_key_head_dim"));
  TRY(writer.copy_integer("ssm.conv_kernel", "linear_conv_kernel_dim"));
  TRY(writer.copy_integer("full_attention_interval", "full_attention_interval"));
  const std::int64_t heads = TRY(writer.integer("ssm.time_step_rank"));
  const std::int64_t size = TRY(writer.integer("ssm.inner_size"));
  if (heads < 1 || size < 1 || size % heads != 0)
    return writer.wrong("ssm.inner_size", fmt::format("a multiple of ssm.time_step_rank ({})", heads));
  writer.set("linear_num_value_heads", heads, "ssm.time_step_rank");
  writer.set("linear_value_head_dim", size / heads);
  return ok_status();
}

Status write_qwen35(ConfigWriter& writer) {
  set_architecture(writer, "Qwen3_5ForCausalLM");
  TRY(writer.copy_integer("nextn_predict_layers", "mtp_num_hidden_layers"));
  return write_delta_net(writer);
}

Status write_qwen35moe(ConfigWriter& writer) {
  set_architecture(writer, "Qwen3_5MoeForCausalLM");
  TRY(writer.copy_integer("nextn_predict_layers", "mtp_num_hidden_layers"));
  TRY(writer.copy_integer("expert_shared_feed_forward_length", "shared_expert_intermediate_size"));
  TRY(write_experts(writer, "num_experts"));
  return write_delta_net(writer);
}

constexpr TensorNameRule kGemmaNames[] = {
    {"output_norm.weight", "/model.norm.weight", Form::kLessOne},
    {"attn_norm.weight", "input_layernorm.weight", Form::kLessOne},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", Form::kLessOne},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight", Form::kLessOne},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", Form::kLessOne},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", Form::kLessOne},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", Form::kLessOne},
};

// Writes the members that Gemma 2 and 3 share. GGUF files do not state the scale of queries. It follows from the head
// size, except in the 27B model, which has `layers_of_27b` layers.
Status write_gemma(ConfigWriter& writer, std::int64_t layers_of_27b) {
  TRY(writer.copy_integer("attention.sliding_window", "sliding_window"));
  TRY(writer.copy_number("attn_logit_softcapping", "attn_logit_softcapping"));
  TRY(writer.copy_number("final_logit_softcapping", "final_logit_softcapping"));
  const std::int64_t heads = TRY(writer.integer("attention.head_count"));
  const std::int64_t hidden = TRY(writer.integer("embedding_length"));
  const bool is_27b = TRY(writer.integer("block_count")) == layers_of_27b;
  const std::int64_t by_heads = heads > 0 ? hidden / heads : 0;
  writer.set("query_pre_attn_scalar", is_27b ? by_heads : TRY(writer.integer("attention.key_length")));
  return ok_status();
}

Status write_gemma2(ConfigWriter& writer) {
  constexpr std::int64_t kLayersOf27B = 46;
  set_architecture(writer, "Gemma2ForCausalLM");
  return write_gemma(writer, kLayersOf27B);
}

// Writes the config of Gemma 3. The metadata's rope scaling applies only to layers with full attention.
Status write_gemma3(ConfigWriter& writer) {
  constexpr std::int64_t kLayersOf27B = 62;
  constexpr double kSlidingTheta = 1e4;
  set_architecture(writer, "Gemma3ForCausalLM");
  Json sliding = Json::object();
  sliding.set("rope_type", "default");
  sliding.set("rope_theta", TRY(writer.optional_number("rope.freq_base_swa")).value_or(kSlidingTheta));
  Json ropes = Json::object();
  ropes.set("full_attention", *writer.config().find("rope_parameters"));
  ropes.set("sliding_attention", std::move(sliding));
  writer.set("rope_parameters", std::move(ropes));
  return write_gemma(writer, kLayersOf27B);
}

constexpr TensorNameRule kGptOssNames[] = {
    {"ffn_gate_inp.weight", "mlp.router.weight"},
    {"ffn_gate_inp.bias", "mlp.router.bias"},
    {"ffn_gate_exps.weight", "mlp.experts.gate_up_proj", Form::kMxfp4Gate},
    {"ffn_up_exps.weight", "mlp.experts.gate_up_proj", Form::kMxfp4Up},
    {"ffn_down_exps.weight", "mlp.experts.down_proj", Form::kMxfp4Down},
    {"ffn_gate_exps.bias", "mlp.experts.gate_up_proj_bias", Form::kBiasGate},
    {"ffn_up_exps.bias", "mlp.experts.gate_up_proj_bias", Form::kBiasUp},
    {"ffn_down_exps.bias", "mlp.experts.down_proj_bias"},
};

Status write_gpt_oss(ConfigWriter& writer) {
  set_architecture(writer, "GptOssForCausalLM");
  TRY(writer.copy_integer("attention.sliding_window", "sliding_window"));
  TRY(writer.copy_integer("expert_count", "num_local_experts"));
  TRY(writer.copy_integer("expert_used_count", "num_experts_per_tok"));
  TRY(writer.copy_integer("expert_feed_forward_length", "intermediate_size"));
  writer.set("quantization_config", Json::object().set("quant_method", "mxfp4"));
  Json rope = *writer.config().find("rope_parameters");
  if (*rope.find("rope_type") == Json("yarn")) rope.set("truncate", false);  // as in the published config.json
  writer.set("rope_parameters", std::move(rope));
  return ok_status();
}

constexpr TensorNameRule kPhi3Names[] = {{"ffn_up.weight", "mlp.gate_up_proj.weight"}};

Status write_phi3(ConfigWriter& writer) {
  set_architecture(writer, "Phi3ForCausalLM");
  // Phi-4's files state the window 0. Its config.json has none.
  const std::int64_t window = TRY(writer.optional_integer("attention.sliding_window")).value_or(0);
  if (window > 0) writer.set("sliding_window", window, "attention.sliding_window");
  return ok_status();
}

// Writes the routing of DeepSeek and GLM.
Status write_grouped_experts(ConfigWriter& writer) {
  TRY(write_experts(writer, "n_routed_experts"));
  TRY(writer.copy_integer("expert_shared_count", "n_shared_experts"));
  TRY(writer.copy_integer("leading_dense_block_count", "first_k_dense_replace"));
  TRY(writer.copy_number("expert_weights_scale", "routed_scaling_factor"));
  TRY(writer.copy_integer("expert_group_count", "n_group"));
  TRY(writer.copy_integer("expert_group_used_count", "topk_group"));
  writer.set("norm_topk_prob", TRY(writer.model().optional_boolean(writer.key("expert_weights_norm"))).value_or(false));
  return writer.copy_integer("nextn_predict_layers", "num_nextn_predict_layers");
}

Status write_glm4moe(ConfigWriter& writer) {
  set_architecture(writer, "Glm4MoeForCausalLM");
  set_if_there(writer, "attn_q.bias", "attention_bias");
  set_if_there(writer, "attn_q_norm.weight", "use_qk_norm");
  return write_grouped_experts(writer);
}

// Writes the config of DeepSeek V2 or V3, which differ in how experts are chosen.
Status write_deepseek2(ConfigWriter& writer) {
  constexpr std::int64_t kSoftmax = 1;
  constexpr std::int64_t kSigmoid = 2;
  const std::int64_t gating = TRY(writer.optional_integer("expert_gating_func")).value_or(kSoftmax);
  if (gating != kSoftmax && gating != kSigmoid)
    return unimplemented(writer.wrong("expert_gating_func", "1 (softmax) and 2 (sigmoid)").message());
  set_architecture(writer, gating == kSigmoid ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM");
  const std::int64_t groups = TRY(writer.optional_integer("expert_group_count")).value_or(1);
  if (gating == kSoftmax) writer.set("topk_method", groups > 1 ? "group_limited_greedy" : "greedy");
  TRY(writer.copy_integer("attention.q_lora_rank", "q_lora_rank"));
  if (writer.config().find("q_lora_rank") == nullptr) writer.set("q_lora_rank", Json());
  TRY(writer.copy_integer("attention.kv_lora_rank", "kv_lora_rank"));
  const std::int64_t rotated = TRY(writer.integer("rope.dimension_count"));
  writer.set("qk_rope_head_dim", rotated, "rope.dimension_count");
  writer.set("head_dim", rotated, "rope.dimension_count");
  writer.set("rope_parameters", TRY(gguf_rope_parameters(writer, rotated)));
  // Newer files state the head sizes of MLA under separate keys that end in "_mla". In these files the usual keys give
  // the sizes of the latent vector.
  const bool own = writer.model().find(writer.key("attention.key_length_mla")) != nullptr;
  const std::int64_t key = TRY(writer.integer(own ? "attention.key_length_mla" : "attention.key_length"));
  writer.set("qk_nope_head_dim", key - rotated);
  const char* value = own ? "attention.value_length_mla" : "attention.value_length";
  writer.set("v_head_dim", TRY(writer.integer(value)), value);
  writer.set("num_key_value_heads", TRY(writer.integer("attention.head_count")), "attention.head_count");
  return write_grouped_experts(writer);
}

// The language models of Qwen2-VL and Qwen2.5-VL have the same architecture, but the towers differ.
constexpr GgufImages kQwen2Images[] = {{.projector = kQwen2Projector,
                                        .architecture = "Qwen2VLForConditionalGeneration",
                                        .body_prefix = "model.",
                                        .interleaved_rope = false},
                                       {.projector = kQwen25Projector,
                                        .architecture = "Qwen2_5_VLForConditionalGeneration",
                                        .body_prefix = "model.",
                                        .interleaved_rope = false}};
constexpr std::string_view kNestedBody = "model.language_model.";
constexpr GgufImages qwen3_images(std::string_view architecture) {
  return {.projector = kQwen3Projector, .architecture = architecture, .body_prefix = kNestedBody};
}
constexpr GgufImages kQwen3Images[] = {qwen3_images("Qwen3VLForConditionalGeneration")};
constexpr GgufImages kQwen3MoeImages[] = {qwen3_images("Qwen3VLMoeForConditionalGeneration")};
constexpr GgufImages kQwen35Images[] = {qwen3_images("Qwen3_5ForConditionalGeneration")};
constexpr GgufImages kQwen35MoeImages[] = {qwen3_images("Qwen3_5MoeForConditionalGeneration")};

// Without a projector, a model whose architecture's name ends in "vl" is read as a language model. Such a model gets
// only text tokens, whose positions in time, height and width are equal, so one position for each token is enough.
constexpr GgufArchitecture kArchitectures[] = {
    {.name = "llama", .write = write_llama, .names = kLlamaNames},
    {.name = "qwen2", .write = write_qwen2},
    {.name = "qwen2vl", .write = write_qwen2, .images = kQwen2Images},
    {.name = "qwen3", .write = write_qwen3_or_reranker, .names = kQwen3Names},
    {.name = "qwen3vl", .write = write_qwen3, .images = kQwen3Images},
    {.name = "qwen3moe", .write = write_qwen3moe},
    {.name = "qwen3vlmoe", .write = write_qwen3moe, .images = kQwen3MoeImages},
    {.name = "qwen35", .write = write_qwen35, .names = kQwen35Names, .drafts_apart = true, .images = kQwen35Images},
    {.name = "qwen35moe",
     .write = write_qwen35moe,
     .names = kQwen35Names,
     .drafts_apart = true,
     .images = kQwen35MoeImages},
    {.name = "gemma2", .write = write_gemma2, .names = kGemmaNames},
    {.name = "gemma3", .write = write_gemma3, .names = kGemmaNames},
    {.name = "gemma4", .write = write_gemma4, .names = kGemma4Names, .sizes_by_layer = true},
    {.name = "gpt-oss", .write = write_gpt_oss, .names = kGptOssNames, .keeps_nvfp4 = false},
    {.name = "phi3", .write = write_phi3, .names = kPhi3Names},
    {.name = "mistral3", .write = write_mistral3, .names = kLlamaNames},
    {.name = "deepseek2", .write = write_deepseek2},
    {.name = "glm4moe", .write = write_glm4moe},
};

// The architecture of a projector's file.
constexpr std::string_view kProjector = "clip";

}  // namespace

std::string architectures_with_images() {
  std::vector<std::string_view> names;
  for (const GgufArchitecture& architecture : kArchitectures)
    if (!architecture.images.empty()) names.push_back(architecture.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  const auto* found = std::ranges::find(kArchitectures, name, &GgufArchitecture::name);
  return found != std::end(kArchitectures) ? found : nullptr;
}

Result<const GgufArchitecture*> gguf_architecture(const GgufModel& model) {
  const std::string name = TRY(model.string("general.architecture"));
  if (const GgufArchitecture* found = find_gguf_architecture(name)) return found;
  if (name == kProjector)
    return invalid_argument(
        fmt::format("{} is a projector, a vision tower alone; accepted: the GGUF file of its "
                    "language model, with the projector as --mmproj",
                    model.path()));
  std::vector<std::string_view> known;
  for (const GgufArchitecture& architecture : kArchitectures) known.push_back(architecture.name);
  return unimplemented(model.wrong("general.architecture", fmt::format("{}", fmt::join(known, ", "))).message());
}

}  // namespace tessera
