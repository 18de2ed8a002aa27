#include "tessera/model/gguf/gguf_gemma4.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/model/gguf/gguf_rope.h"

namespace tessera {
namespace {

constexpr std::string_view kPattern = "attention.sliding_window_pattern";

// Returns the value of each layer. A single value applies to all layers.
Result<std::vector<std::int64_t>> of_layers(const ConfigWriter& writer, std::string_view name, std::int64_t layers) {
  const GgufValue* value = writer.model().find(writer.key(name));
  if (value != nullptr) {
    const auto fits = [](std::int64_t size) { return size >= 0 && size <= GgufModel::kMaxInteger; };
    if (const auto one = value->integer(); one && fits(*one))
      return std::vector<std::int64_t>(static_cast<std::size_t>(layers), *one);
    if (auto list = value->integers(); list && std::ssize(*list) == layers && std::ranges::all_of(*list, fits))
      return *std::move(list);
  }
  return writer.wrong(name, fmt::format("an integer from 0 to {}, or a list of {}", GgufModel::kMaxInteger, layers));
}

// Returns whether each layer has a window.
Result<std::vector<bool>> read_pattern(const ConfigWriter& writer, std::int64_t layers) {
  const GgufValue* value = writer.model().find(writer.key(kPattern));
  auto pattern = value != nullptr ? value->booleans() : std::nullopt;
  if (pattern && std::ssize(*pattern) == layers && layers > 0 && !pattern->back()) return *std::move(pattern);
  return writer.wrong(kPattern, fmt::format("a list of {} booleans whose last is false", layers));
}

// Layers with full attention rotate only the first pairs of a head. The file expresses this by factors: 1 for a rotated
// pair, and a huge number for another pair.
Result<Json> full_rotation(const ConfigWriter& writer) {
  constexpr double kHuge = 1e20;
  const std::vector<double> factors = TRY(gguf_rope_factors(writer.model()));
  const auto first_huge = std::ranges::find_if(factors, [](double factor) { return factor != 1; });
  const bool known = first_huge != factors.begin() &&
                     std::all_of(first_huge, factors.end(), [](double factor) { return factor > kHuge; });
  if (!known)
    return unimplemented(
        fmt::format("{}: tensor rope_freqs.weight has other numbers than ones and then numbers above "
                    "1e20; accepted: these, which say how many pairs of a head are rotated",
                    writer.model().path()));
  Json rope = Json::object();
  rope.set("rope_type", "proportional");
  rope.set("rope_theta", TRY(writer.optional_number("rope.freq_base")).value_or(1e6));
  rope.set("partial_rotary_factor",
           static_cast<double>(first_huge - factors.begin()) / static_cast<double>(factors.size()));
  return rope;
}

Status write_heads(ConfigWriter& writer, const std::vector<bool>& windows) {
  const std::int64_t layers = std::ssize(windows);
  const std::vector<std::int64_t> kv_heads = TRY(of_layers(writer, "attention.head_count_kv", layers));
  const auto full = static_cast<std::size_t>(std::ranges::find(windows, false) - windows.begin());
  const auto sliding = static_cast<std::size_t>(std::ranges::find(windows, true) - windows.begin());
  for (std::size_t i = 0; i < windows.size(); ++i)
    if (kv_heads[i] != kv_heads[windows[i] ? sliding : full])
      return writer.wrong("attention.head_count_kv", "one number for all layers with a window, and one for all others");
  writer.set("num_key_value_heads", kv_heads[sliding < windows.size() ? sliding : full], "attention.head_count_kv");
  writer.set("num_global_key_value_heads", kv_heads[full], "attention.head_count_kv");
  writer.set("attention_k_eq_v", !writer.has_tensor(fmt::format("blk.{}.attn_v.weight", full)));
  const std::int64_t global = TRY(writer.integer("attention.key_length"));
  writer.set("global_head_dim", global, "attention.key_length");
  const std::optional<std::int64_t> windowed = TRY(writer.optional_integer("attention.key_length_swa"));
  writer.set("head_dim", windowed.value_or(global), windowed ? "attention.key_length_swa" : "attention.key_length");
  return ok_status();
}

Status write_mlps(ConfigWriter& writer, std::int64_t layers, std::int64_t shared) {
  const std::vector<std::int64_t> sizes = TRY(of_layers(writer, "feed_forward_length", layers));
  const bool wide = shared > 0 && sizes.back() == 2 * sizes.front();
  for (std::int64_t i = 0; i < layers; ++i)
    if (sizes[static_cast<std::size_t>(i)] != sizes.front() * (wide && i >= layers - shared ? 2 : 1))
      return writer.wrong("feed_forward_length",
                          "one size for all layers, or twice this size for the layers that share "
                          "keys and values");
  writer.set("intermediate_size", sizes.front(), "feed_forward_length");
  writer.set("use_double_wide_mlp", wide);
  return ok_status();
}

}  // namespace

Status write_gemma4(ConfigWriter& writer) {
  constexpr double kSlidingTheta = 1e4;
  Json::Array names;
  names.emplace_back("Gemma4ForCausalLM");
  writer.set("architectures", std::move(names));
  const std::int64_t layers = TRY(writer.integer("block_count"));
  const std::vector<bool> windows = TRY(read_pattern(writer, layers));
  Json::Array types;
  for (const bool window : windows) types.emplace_back(window ? "sliding_attention" : "full_attention");
  writer.set("layer_types", std::move(types));
  Json sliding = Json::object();
  sliding.set("rope_type", "default");
  sliding.set("rope_theta", TRY(writer.optional_number("rope.freq_base_swa")).value_or(kSlidingTheta));
  Json ropes = Json::object();
  ropes.set("full_attention", TRY(full_rotation(writer)));
  ropes.set("sliding_attention", std::move(sliding));
  writer.set("rope_parameters", std::move(ropes));
  TRY(write_heads(writer, windows));
  const std::int64_t shared = TRY(writer.optional_integer("attention.shared_kv_layers")).value_or(0);
  writer.set("num_kv_shared_layers", shared, "attention.shared_kv_layers");
  TRY(write_mlps(writer, layers, shared));
  TRY(writer.copy_integer("attention.sliding_window", "sliding_window"));
  TRY(writer.copy_number("final_logit_softcapping", "final_logit_softcapping"));
  writer.set("hidden_size_per_layer_input",
             TRY(writer.optional_integer("embedding_length_per_layer_input")).value_or(0));
  if (const GgufTensor* table = writer.model().find_tensor("per_layer_token_embd.weight"))
    writer.set("vocab_size_per_layer_input", table->shape.front());
  const std::int64_t experts = TRY(writer.optional_integer("expert_count")).value_or(0);
  writer.set("enable_moe_block", experts > 0);
  if (experts == 0) return ok_status();
  writer.set("num_experts", experts, "expert_count");
  TRY(writer.copy_integer("expert_used_count", "top_k_experts"));
  return writer.copy_integer("expert_feed_forward_length", "moe_intermediate_size");
}

}  // namespace tessera
