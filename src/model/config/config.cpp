#include "tessera/model/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/json_fields.h"
#include "tessera/model/config/layer_ropes.h"
#include "tessera/model/config/moe_fields.h"
#include "tessera/model/family.h"

namespace tessera {
namespace {

constexpr std::pair<Activation, std::string_view> kActivations[] = {
    {Activation::kSilu, "silu"},
    {Activation::kGelu, "gelu"},
    {Activation::kGeluTanh, "gelu_pytorch_tanh"},
};

// Returns the names in a table of pairs (value, name), separated by commas.
template <class Table>
std::string names_of(const Table& table) {
  std::string names;
  for (const auto& [value, name] : table) {
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

// Known architectures that are not supported, each with the reason.
constexpr std::pair<std::string_view, std::string_view> kLacking[] = {
    {"DeepseekV32ForCausalLM",
     "its sparse attention, whose indexer chooses the keys of each row by a cache of its own, has no operator"},
};

Result<const ModelFamily*> read_family(const Fields& fields, const FamilyRegistry& families) {
  const Json* value = fields.find("architectures");
  const std::string accepted = "a list that begins with one of " + families.names();
  if (value == nullptr || !value->is_array() || value->as_array().empty() || !value->as_array()[0].is_string()) {
    return fields.wrong("architectures", accepted);
  }
  const std::string& name = value->as_array()[0].as_string();
  const ModelFamily* family = families.find(name);
  if (family != nullptr) return family;
  for (const auto& [architecture, why] : kLacking)
    if (architecture == name)
      return fields.unsupported("architectures", fmt::format("{}; {} is not: {}", accepted, name, why));
  const std::vector<std::string> near = families.nearest(name);
  return fields.unsupported("architectures",
                            near.empty() ? accepted : fmt::format("{}; nearest: {}", accepted, near[0]));
}

// Returns whether the member is a token id outside of the model's own vocabulary. Hugging Face saves the default ids of
// its config classes in "text_config", even if the model's vocabulary is smaller. This engine ignores such ids.
bool is_foreign_token(const Json& text, const Json::Member& member) {
  const auto& [key, value] = member;
  const Json* vocab_size = text.find("vocab_size");
  return (key == "bos_token_id" || key == "eos_token_id") && value.is_int() && vocab_size != nullptr &&
         vocab_size->is_int() && value.as_int() >= vocab_size->as_int();
}

// Returns the members of "text_config" without foreign token ids, and those members of the outer object that
// "text_config" lacks. If the outer object has no "text_config", returns the outer object.
Result<Json> text_members(const Fields& fields, const Json& json) {
  const Json* text = fields.find("text_config");
  if (text == nullptr) return json;
  if (!text->is_object()) return fields.wrong("text_config", "an object");
  Json merged = Json::object();
  for (const Json::Member& member : text->as_object())
    if (!is_foreign_token(*text, member)) merged.set(member.first, member.second);
  for (const auto& [key, value] : json.as_object())
    if (merged.find(key) == nullptr) merged.set(key, value);
  return merged;
}

// Reads how weights are quantised. In a quantised GPT-OSS only the experts are quantised, and config.moe->mxfp4 says
// so. For all other models config.formats gets the formats of the linears.
Status read_quantisation(const Fields& fields, const Json& whole, const Json* beside, const ModelFamily& family,
                         ModelConfig& config) {
  const Json* of_experts = family.mxfp4_experts ? fields.find("quantization_config") : nullptr;
  if (of_experts == nullptr) {
    config.formats = TRY(WeightFormats::read(whole, beside, fields.file()));
    return ok_status();
  }
  if (!of_experts->is_object()) return fields.wrong("quantization_config", "an object");
  if (beside != nullptr)
    return fields.unsupported("quantization_config",
                              "no such field beside hf_quant_config.json or quantize_config.json");
  return read_mxfp4(*of_experts, fields.file(), *config.moe);
}

Status read_sizes(const Fields& fields, ModelConfig& config) {
  using C = ModelConfig;
  TRY(fields.read_size("vocab_size", C::kMaxVocabSize, config.vocab_size));
  TRY(fields.read_size("hidden_size", C::kMaxHiddenSize, config.hidden_size));
  TRY(fields.read_size("intermediate_size", C::kMaxIntermediateSize, config.intermediate_size));
  TRY(fields.read_size("num_hidden_layers", C::kMaxLayers, config.num_hidden_layers));
  TRY(fields.read_size("num_attention_heads", C::kMaxHeads, config.num_attention_heads));
  TRY(fields.read_size("max_position_embeddings", C::kMaxPositions, config.max_position_embeddings));

  const std::optional<std::int64_t> kv_heads = TRY(fields.optional_int("num_key_value_heads", 1, C::kMaxHeads));
  const bool has_default = config.num_key_value_heads > 0;
  config.num_key_value_heads = kv_heads.value_or(has_default ? config.num_key_value_heads : config.num_attention_heads);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    return fields.wrong("num_key_value_heads",
                        fmt::format("a divisor of num_attention_heads ({})", config.num_attention_heads));
  }

  const std::optional<std::int64_t> head_dim = TRY(fields.optional_int("head_dim", 2, C::kMaxHeadDim));
  if (head_dim) config.head_dim = *head_dim;
  if (config.head_dim == 0) {  // neither the file nor the family gives head_dim
    if (config.hidden_size % config.num_attention_heads != 0) {
      return fields.wrong("hidden_size",
                          fmt::format("a multiple of num_attention_heads ({}) where head_dim is not given",
                                      config.num_attention_heads));
    }
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  if (config.head_dim < 2 || config.head_dim % 2 != 0 || config.head_dim > C::kMaxHeadDim) {
    return fields.wrong(
        head_dim ? "head_dim" : "hidden_size",
        fmt::format("a size that makes head_dim (now {}) even and in [2, {}]", config.head_dim, C::kMaxHeadDim));
  }
  if (config.query_size() > C::kMaxQuerySize) {
    return fields.wrong("num_attention_heads", fmt::format("a number whose product with head_dim ({}) is at most {}",
                                                           config.head_dim, C::kMaxQuerySize));
  }
  return ok_status();
}

Status read_layer_form(const Fields& fields, const ModelFamily& family, ModelConfig& config) {
  config.rms_norm_eps = TRY(fields.optional_number("rms_norm_eps", 0.0, 0.1)).value_or(config.rms_norm_eps);
  for (const char* key : {"num_nextn_predict_layers", "mtp_num_hidden_layers"})
    config.draft_layers = TRY(fields.optional_int(key, 0, ModelConfig::kMaxLayers)).value_or(config.draft_layers);
  config.tie_word_embeddings = TRY(fields.optional_bool("tie_word_embeddings")).value_or(config.tie_word_embeddings);

  if (family.make_body) return ok_status();  // the graph that make_body() builds already contains the activation
  // Gemma calls the field hidden_activation. Some of Gemma's files have both hidden_act and hidden_activation. For such
  // files Hugging Face reads hidden_activation.
  const char* key = fields.find("hidden_activation") != nullptr ? "hidden_activation" : "hidden_act";
  const std::optional<std::string> act = TRY(fields.optional_string(key));
  if (!act) return ok_status();
  const auto* found = std::ranges::find(kActivations, *act, &std::pair<Activation, std::string_view>::second);
  if (found == std::end(kActivations)) return fields.unsupported(key, names_of(kActivations));
  config.hidden_act = found->first;
  return ok_status();
}

Status read_dtype(const Fields& fields, ModelConfig& config) {
  const char* key = fields.find("dtype") != nullptr ? "dtype" : "torch_dtype";
  const std::optional<std::string> name = TRY(fields.optional_string(key));
  if (!name) return ok_status();
  config.dtype = weight_dtype_from_config(*name);
  if (!config.dtype) return fields.unsupported(key, "float32, float16, bfloat16");
  return ok_status();
}

// Reads the vision tower's config if the file has one. Some checkpoints contain only the language model.
Status read_tower(const Fields& fields, const std::string& file, ModelConfig& config) {
  if (!config.vision) return ok_status();
  const Json* tower = fields.find("vision_config");
  if (tower == nullptr) {
    config.vision.reset();
    return ok_status();
  }
  if (!tower->is_object()) return fields.wrong("vision_config", "an object");
  return read_vision_config(*tower, file, config.hidden_size, *config.vision);
}

Status read_tokens(const Fields& fields, ModelConfig& config) {
  const std::vector<TokenId> bos = TRY(fields.token_ids("bos_token_id", config.vocab_size));
  if (bos.size() > 1) return fields.wrong("bos_token_id", "one token id");
  if (!bos.empty()) config.bos_token_id = bos[0];
  config.eos_token_ids = TRY(fields.token_ids("eos_token_id", config.vocab_size));
  // An invalid padding token is not an error: many checkpoints have -1, or an id that was never added.
  const std::optional<std::int64_t> pad = TRY(fields.optional_int("pad_token_id", -1, ModelConfig::kMaxVocabSize));
  if (pad && *pad >= 0 && *pad < config.vocab_size) config.pad_token_id = TokenId(static_cast<std::int32_t>(*pad));
  return ok_status();
}

}  // namespace

Result<ModelConfig> ModelConfig::from_json(const Json& json, const std::string& file, const FamilyRegistry& families,
                                           const Json* beside) {
  const ModelFamily* family = TRY(read_family(Fields(json, file), families));
  const Json rewritten = family->rewrite_config ? TRY(family->rewrite_config(json).with_context(file)) : json;
  const Json members = TRY(text_members(Fields(rewritten, file), rewritten));
  const Fields fields(members, file);
  ModelConfig config = family->defaults;
  config.architecture = family->architecture;
  if (family->make_body) config.json = members.dump();
  TRY(read_quantisation(fields, rewritten, beside, *family, config));
  TRY(read_sizes(fields, config));
  TRY(read_layer_form(fields, *family, config));
  TRY(family->read_config(fields, config));
  const RopeContext rotation{.max_position_embeddings = config.max_position_embeddings,
                             .head_dim = config.head_dim,
                             .partial_rotary = family->partial_rotary,
                             .default_part = family->defaults.rope.partial_rotary_factor,
                             .query_growth = family->query_growth,
                             .sections = config.images.has_value(),
                             .default_sections = family->defaults.rope.sections,
                             .interleaved_by_default = family->defaults.rope.interleaved_sections};
  if (config.sliding_rope) {
    RopeContext sliding = rotation;
    // If the file describes a rotation without partial_rotary_factor, whole heads rotate. If the file describes no
    // rotation, the family's rotation and its partial_rotary_factor stay.
    sliding.default_part = 1.0;
    RopeContext full = sliding;
    if (config.gemma4) full.head_dim = config.gemma4->global_head_dim;
    TRY(read_layer_ropes(members, file, {full, config.rope}, {sliding, *config.sliding_rope}));
  } else {
    TRY(read_rope(members, file, rotation, config.rope));
  }
  TRY(read_dtype(fields, config));
  TRY(read_tokens(fields, config));
  TRY(read_tower(fields, file, config));
  return config;
}

bool ModelConfig::any_sliding_window() const {
  return std::ranges::any_of(sliding_windows, [](std::int64_t window) { return window > 0; });
}

}  // namespace tessera
