#include "tessera/model/gguf/tensor_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

namespace tessera {
namespace {

using Form = TensorForm;

// Names of tensors that belong to no layer.
constexpr TensorNameRule kWhole[] = {
    {"token_embd.weight", "/model.embed_tokens.weight"},
    {"output_norm.weight", "/model.norm.weight"},
    {"output.weight", "/lm_head.weight"},
    {"rope_freqs.weight", "", Form::kSkipped},
    {"rope_factors_long.weight", "", Form::kSkipped},
    {"rope_factors_short.weight", "", Form::kSkipped},
};

constexpr TensorNameRule kOfLayer[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_qkv.weight", "self_attn.qkv_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"attn_q_a.weight", "self_attn.q_a_proj.weight"},
    {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"},
    {"attn_q_b.weight", "self_attn.q_b_proj.weight"},
    {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"},
    {"attn_kv_b.weight", "self_attn.kv_b_proj.weight"},
    {"attn_k_b.weight", "self_attn.kv_b_proj.weight", Form::kLatentKeys},
    {"attn_v_b.weight", "self_attn.kv_b_proj.weight", Form::kLatentValues},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_gate.bias", "mlp.gate_proj.bias"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_up.bias", "mlp.up_proj.bias"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_down.bias", "mlp.down_proj.bias"},
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"ffn_gate_exps.weight", "mlp.experts.{}.gate_proj.weight", Form::kExperts},
    {"ffn_up_exps.weight", "mlp.experts.{}.up_proj.weight", Form::kExperts},
    {"ffn_down_exps.weight", "mlp.experts.{}.down_proj.weight", Form::kExperts},
    {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"},
    {"nextn.eh_proj.weight", "eh_proj.weight"},
    {"nextn.embed_tokens.weight", "embed_tokens.weight"},
    {"nextn.enorm.weight", "enorm.weight"},
    {"nextn.hnorm.weight", "hnorm.weight"},
    {"nextn.shared_head_head.weight", "shared_head.head.weight"},
    {"nextn.shared_head_norm.weight", "shared_head.norm.weight"},
};

}  // namespace

GgufTensorName parse_tensor_name(std::string_view name) {
  constexpr std::string_view kLayer = "blk.";
  if (!name.starts_with(kLayer)) return {.layer = {}, .rest = name};
  const char* const begin = name.data() + kLayer.size();
  const char* const end = name.data() + name.size();
  std::int64_t layer = 0;
  const auto [dot, error] = std::from_chars(begin, end, layer);
  if (error != std::errc() || layer < 0 || dot == end || *dot != '.') return {.layer = {}, .rest = name};
  return {.layer = layer, .rest = name.substr(static_cast<std::size_t>(dot + 1 - name.data()))};
}

const TensorNameRule* find_name_rule(const GgufTensorName& name, std::span<const TensorNameRule> own) {
  const std::span<const TensorNameRule> common = name.layer ? std::span<const TensorNameRule>(kOfLayer) : kWhole;
  for (const std::span<const TensorNameRule> rules : {own, common}) {
    const auto rule = std::ranges::find(rules, name.rest, &TensorNameRule::gguf);
    if (rule != rules.end()) return &*rule;
  }
  return nullptr;
}

const TensorNameRule* find_rule_of_own(std::string_view name, bool of_layer, std::span<const TensorNameRule> own) {
  const std::span<const TensorNameRule> common = of_layer ? std::span<const TensorNameRule>(kOfLayer) : kWhole;
  for (const std::span<const TensorNameRule> rules : {own, common}) {
    const auto rule = std::ranges::find(rules, name, &TensorNameRule::own);
    if (rule != rules.end()) return &*rule;
  }
  return nullptr;
}

std::string gguf_name_of(std::string_view name, const OwnNames& names) {
  constexpr std::string_view kDrafts = "mtp.layers.";
  constexpr std::string_view kLayers = "layers.";
  constexpr std::string_view kExperts = ".experts.";
  const bool of_body = name.starts_with(names.body);
  std::string_view rest = of_body ? name.substr(names.body.size()) : name;
  const bool of_draft = names.drafts_after && rest.starts_with(kDrafts);
  if (!of_draft && (!of_body || !rest.starts_with(kLayers))) {
    const TensorNameRule* rule =
        find_rule_of_own(of_body ? "/model." + std::string(rest) : "/" + std::string(name), false, names.rules);
    if (rule == nullptr) return std::string(name);
    const bool of_layer = rule->gguf.starts_with("nextn.");
    return of_layer ? fmt::format("blk.{}.{}", names.drafts_after.value_or(0), rule->gguf) : std::string(rule->gguf);
  }
  rest.remove_prefix((of_draft ? kDrafts : kLayers).size());
  std::int64_t layer = 0;
  const auto [dot, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  if (error != std::errc() || dot == rest.data() + rest.size()) return std::string(name);
  std::string own(rest.substr(static_cast<std::size_t>(dot - rest.data()) + 1));
  // A rule has "{}" in place of an expert's number.
  if (const std::size_t at = own.find(kExperts); at != std::string::npos) {
    const std::size_t number = at + kExperts.size();
    const std::size_t end = own.find_first_not_of("0123456789", number);
    if (end != number && end != std::string::npos) own.replace(number, end - number, "{}");
  }
  const TensorNameRule* rule = find_rule_of_own(own, true, names.rules);
  if (rule == nullptr) return std::string(name);
  return fmt::format("blk.{}.{}", layer + (of_draft ? *names.drafts_after : 0), rule->gguf);
}

}  // namespace tessera
