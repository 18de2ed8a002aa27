#include "tessera/model/quantise/folder_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "tessera/model/quantise/gemma4_sizes.h"

namespace tessera {
namespace {

// Says which layers attend only to a window of tokens. Except for kListed, the architecture determines this, and a GGUF
// file states only the size of the window.
enum class Windows : std::uint8_t {
  kNone,
  kEverySecond,  // layers 0, 2, 4, …
  kFiveOfSix,    // all layers except 5, 11, 17, …
  kListed,       // the layers that the file lists
};

struct FolderArchitecture {
  std::string_view family;
  std::string_view name;  // general.architecture
  Activation activation = Activation::kSilu;
  Windows windows = Windows::kNone;
  bool states_expert_size = true;  // whether GGUF files have expert_feed_forward_length
};

constexpr FolderArchitecture kFolderArchitectures[] = {
    {.family = "LlamaForCausalLM", .name = "llama", .states_expert_size = false},
    {.family = "MistralForCausalLM", .name = "llama", .states_expert_size = false},
    {.family = "MixtralForCausalLM", .name = "llama", .states_expert_size = false},
    {.family = "Qwen2ForCausalLM", .name = "qwen2"},
    {.family = "Qwen3ForCausalLM", .name = "qwen3"},
    {.family = "Qwen3MoeForCausalLM", .name = "qwen3moe"},
    {.family = "Qwen3_5ForCausalLM", .name = "qwen35"},
    {.family = "Qwen3_5ForConditionalGeneration", .name = "qwen35"},
    {.family = "Qwen3_5MoeForCausalLM", .name = "qwen35moe"},
    {.family = "Qwen3_5MoeForConditionalGeneration", .name = "qwen35moe"},
    {.family = "Gemma2ForCausalLM",
     .name = "gemma2",
     .activation = Activation::kGeluTanh,
     .windows = Windows::kEverySecond},
    {.family = "Gemma3ForCausalLM",
     .name = "gemma3",
     .activation = Activation::kGeluTanh,
     .windows = Windows::kFiveOfSix},
    {.family = "Gemma4ForCausalLM", .name = "gemma4", .activation = Activation::kGeluTanh, .windows = Windows::kListed},
    {.family = "Gemma4ForConditionalGeneration",
     .name = "gemma4",
     .activation = Activation::kGeluTanh,
     .windows = Windows::kListed},
    {.family = "GptOssForCausalLM", .name = "gpt-oss", .windows = Windows::kEverySecond},
};

const FolderArchitecture* find_folder_architecture(const ModelConfig& config) {
  const auto* found = std::ranges::find(kFolderArchitectures, config.architecture, &FolderArchitecture::family);
  return found != std::end(kFolderArchitectures) ? found : nullptr;
}

class SizeWriter {
 public:
  SizeWriter(const ModelConfig& config, const FolderArchitecture& architecture, const std::string& file,
             GgufMetadata& metadata)
      : config_(config), architecture_(architecture), file_(file), metadata_(metadata) {}

  Status write() {
    TRY(check());
    integer("vocab_size", config_.vocab_size);
    integer("context_length", config_.max_position_embeddings);
    integer("embedding_length", config_.hidden_size);
    // Only GGUF files of models with delta nets contain next-token layers. The block_count of these files includes the
    // next-token layers.
    const std::int64_t drafts = config_.delta_net ? config_.draft_layers : 0;
    integer("block_count", config_.num_hidden_layers + drafts);
    if (drafts > 0) integer("nextn_predict_layers", drafts);
    integer("attention.head_count", config_.num_attention_heads);
    write_layer_sizes();
    number("attention.layer_norm_rms_epsilon", config_.rms_norm_eps);
    TRY(write_windows());
    if (config_.attention_softcap != 0) number("attn_logit_softcapping", config_.attention_softcap);
    if (config_.logit_softcap != 0) number("final_logit_softcapping", config_.logit_softcap);
    TRY(write_experts());
    TRY(write_delta_net());
    return write_rope();
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_.name, name); }
  void integer(std::string_view name, std::int64_t value) { metadata_.set_uint32(key(name), value); }
  void number(std::string_view name, double value) { metadata_.set_float32(key(name), value); }

  Status cannot_say(std::string_view field, std::string_view accepted) const {
    return unimplemented(fmt::format("{}: a GGUF file of architecture {} cannot express {}; accepted: {}", file_,
                                     architecture_.name, field, accepted));
  }

  void write_layer_sizes() {
    if (config_.gemma4) return write_gemma4_sizes(config_, metadata_);
    integer("feed_forward_length", config_.intermediate_size);
    integer("attention.head_count_kv", config_.num_key_value_heads);
    integer("attention.key_length", config_.head_dim);
    integer("attention.value_length", config_.head_dim);
    integer("rope.dimension_count", rotary_dim(config_.rope, config_.head_dim));
  }

  Status check() const {
    if (architecture_.name == "gpt-oss" && !config_.moe->mxfp4)
      return cannot_say("experts that are not in MXFP4", "experts in MXFP4, as published");
    if (config_.hidden_act != architecture_.activation)
      return cannot_say("this hidden_act",
                        architecture_.activation == Activation::kSilu ? "silu" : "gelu_pytorch_tanh");
    if (config_.gemma4 && config_.qkv_bias) return cannot_say("attention_bias true", "false");
    return check_attention_scale();
  }

  // Checks the attention scale. The GGUF files of Gemma 2 and 3 do not state this scale. Readers compute it from the
  // head size or, in the 27B models, from the hidden size and the number of heads. The config must therefore have the
  // scale that readers compute.
  Status check_attention_scale() const {
    if (!config_.attention_scale || config_.gemma4) return ok_status();  // the scale of Gemma 4 is always 1
    const std::int64_t layers_of_27b = architecture_.name == "gemma2" ? 46 : 62;
    const std::int64_t scalar = config_.num_hidden_layers == layers_of_27b
                                    ? config_.hidden_size / config_.num_attention_heads
                                    : config_.head_dim;
    const double scale = 1 / std::sqrt(static_cast<double>(scalar));
    if (std::abs(*config_.attention_scale - scale) <= 1e-9 * scale) return ok_status();
    return cannot_say("this query_pre_attn_scalar", std::to_string(scalar));
  }

  bool expects_window(std::size_t layer) const {
    switch (architecture_.windows) {
      case Windows::kNone: return false;
      case Windows::kEverySecond: return layer % 2 == 0;
      case Windows::kFiveOfSix: return layer % 6 != 5;
      case Windows::kListed: return config_.sliding_windows[layer] > 0;
    }
    return false;
  }

  Status write_windows() {
    const std::vector<std::int64_t>& windows = config_.sliding_windows;
    std::int64_t window = 0;
    for (std::size_t layer = 0; layer < windows.size(); ++layer) {
      if (windows[layer] > 0) window = windows[layer];
      if ((windows[layer] > 0) != expects_window(layer) || (windows[layer] > 0 && windows[layer] != window))
        return cannot_say(fmt::format("a window of {} in layer {}", windows[layer], layer),
                          architecture_.windows == Windows::kNone ? "no windows" : "the family's own order of windows");
    }
    if (window > 0) integer("attention.sliding_window", window);
    return ok_status();
  }

  Status write_experts() {
    if (!config_.moe) return ok_status();
    const MoeConfig& moe = *config_.moe;
    integer("expert_count", moe.num_experts);
    integer("expert_used_count", moe.experts_per_token);
    if (!architecture_.states_expert_size) return ok_status();
    integer("expert_feed_forward_length", moe.intermediate_size);
    if (moe.shared_intermediate_size > 0) integer("expert_shared_feed_forward_length", moe.shared_intermediate_size);
    constexpr double kSwigluLimit = 7;  // the value that readers assume for gpt-oss
    if (moe.swiglu_limit != 0 && moe.swiglu_limit != kSwigluLimit)
      return cannot_say(fmt::format("swiglu_limit {}", moe.swiglu_limit), "7");
    if (moe.swiglu_limit == 0 && !moe.normalise) return cannot_say("norm_topk_prob false", "true");
    if (std::ranges::find(moe.layers, false) != moe.layers.end())
      return cannot_say("a layer without experts", "experts in all layers");
    return ok_status();
  }

  Status write_delta_net() {
    if (!config_.delta_net) return ok_status();
    const DeltaNetConfig& net = *config_.delta_net;
    integer("ssm.conv_kernel", net.conv_size);
    integer("ssm.state_size", net.key_head_dim);
    integer("ssm.group_count", net.key_heads);
    integer("ssm.time_step_rank", net.value_heads);
    integer("ssm.inner_size", net.value_heads * net.value_head_dim);
    const auto first = std::ranges::find(net.layers, false) - net.layers.begin();
    for (std::ptrdiff_t layer = 0; layer < std::ssize(net.layers); ++layer)
      if (net.layers[static_cast<std::size_t>(layer)] == ((layer + 1) % (first + 1) == 0))
        return cannot_say("this order of layers", "full attention in every n-th layer");
    integer("full_attention_interval", first + 1);
    return ok_status();
  }

  Status write_rope() {
    const RopeConfig& rope = config_.rope;
    if (config_.delta_net) {
      // GGUF files of models with delta nets must have rope sections. All three positions of a text token are equal, so
      // any sections give the same result for a model without images.
      std::vector<std::int32_t> sections(rope.sections.begin(), rope.sections.end());
      if (sections.empty()) sections = {static_cast<std::int32_t>(rotary_dim(rope, config_.head_dim) / 2), 0, 0};
      sections.push_back(0);
      metadata_.set_int32s(key("rope.dimension_sections"), sections);
    }
    number("rope.freq_base", rope.theta);
    if (config_.sliding_rope) {
      if (config_.sliding_rope->type != RopeType::kDefault || config_.sliding_rope->partial_rotary_factor != 1)
        return cannot_say("the rotation of layers with a window", "rope_type default, of whole heads, for them");
      number("rope.freq_base_swa", config_.sliding_rope->theta);
    }
    if (config_.gemma4) {
      if (rope.type != RopeType::kProportional || rope.factor != 1)
        return cannot_say("the rotation of layers with full attention", "rope_type proportional, without a factor");
      return ok_status();
    }
    switch (rope.type) {
      case RopeType::kDefault:
      case RopeType::kLlama3: return ok_status();
      case RopeType::kLinear:
        metadata_.set_string(key("rope.scaling.type"), "linear");
        number("rope.scaling.factor", rope.factor);
        return ok_status();
      case RopeType::kYarn: return write_yarn();
      default:
        return cannot_say(fmt::format("rope_type {}", rope_type_name(rope.type)), "default, linear, llama3 and yarn");
    }
  }

  Status write_yarn() {
    const RopeConfig& rope = config_.rope;
    // GGUF files do not say whether YaRN rounds the bounds of its ramp to whole pairs (truncate). Readers assume what
    // the model's published config says.
    const bool truncates = architecture_.name != "gpt-oss";
    if (rope.attention_factor || rope.mscale || rope.mscale_all_dim || rope.truncate != truncates)
      return cannot_say("yarn's attention_factor, mscale or truncate", "yarn without them");
    metadata_.set_string(key("rope.scaling.type"), "yarn");
    number("rope.scaling.factor", rope.factor);
    integer("rope.scaling.original_context_length", rope.original_max_position_embeddings);
    number("rope.scaling.yarn_beta_fast", rope.beta_fast);
    number("rope.scaling.yarn_beta_slow", rope.beta_slow);
    return ok_status();
  }

  const ModelConfig& config_;
  const FolderArchitecture& architecture_;
  const std::string& file_;
  GgufMetadata& metadata_;
};

}  // namespace

Result<std::string_view> architecture_of_folder(const ModelConfig& config, const std::string& file) {
  if (const FolderArchitecture* found = find_folder_architecture(config)) return found->name;
  std::vector<std::string_view> known;
  for (const FolderArchitecture& architecture : kFolderArchitectures) known.push_back(architecture.family);
  return unimplemented(fmt::format("{}: architecture {} as a GGUF file; accepted: {}", file, config.architecture,
                                   fmt::join(known, ", ")));
}

Status write_sizes(const ModelConfig& config, const std::string& file, GgufMetadata& metadata) {
  return SizeWriter(config, *find_folder_architecture(config), file, metadata).write();
}

namespace {

// Returns the divisors of the frequencies by the formula of Llama 3.1's reference code. The divisor is rope.factor for
// long wavelengths and 1 for short ones. In between, the frequencies are interpolated.
std::vector<float> llama3_factors(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const std::int64_t dimensions = rotary_dim(rope, config.head_dim);
  const auto context = static_cast<double>(rope.original_max_position_embeddings);
  std::vector<float> factors;
  for (std::int64_t i = 0; i < dimensions; i += 2) {
    const double frequency = std::pow(rope.theta, -static_cast<double>(i) / static_cast<double>(dimensions));
    const double wave = 2 * std::numbers::pi / frequency;
    double factor = 1;
    if (wave > context / rope.low_freq_factor) {
      factor = rope.factor;
    } else if (wave >= context / rope.high_freq_factor) {
      const double smooth = (context / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      factor = 1 / ((1 - smooth) / rope.factor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

}  // namespace

std::vector<float> rope_factors(const ModelConfig& config) {
  if (config.gemma4) return gemma4_rope_factors(config);
  return config.rope.type == RopeType::kLlama3 ? llama3_factors(config) : std::vector<float>();
}

}  // namespace tessera
