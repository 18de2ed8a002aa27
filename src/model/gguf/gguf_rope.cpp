#include "tessera/model/gguf/gguf_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/gguf/stored_form.h"

namespace tessera {
namespace {

constexpr std::string_view kFactors = "rope_freqs.weight";
constexpr std::string_view kLongFactors = "rope_factors_long.weight";
constexpr std::string_view kShortFactors = "rope_factors_short.weight";
constexpr std::int64_t kMostFactors = ModelConfig::kMaxHeadDim;

// Returns the numbers of an F32 tensor with at most kMostFactors numbers.
Result<std::vector<double>> read_factors(const GgufModel& model, std::string_view name) {
  const GgufTensor* tensor = model.find_tensor(name);
  if (tensor == nullptr || tensor->type != BlockType::kF32)
    return invalid_argument(fmt::format("{}: tensor {} is {}; accepted: type F32", model.path(), name,
                                        tensor == nullptr ? "missing" : block_type_info(tensor->type).name));
  if (static_cast<std::int64_t>(tensor->data.size() / sizeof(float)) > kMostFactors)
    return wrong_shape(model.path(), *tensor, fmt::format("at most {} numbers", kMostFactors));
  std::vector<double> factors;
  for (std::size_t at = 0; at < tensor->data.size(); at += sizeof(float)) {
    float factor = 0;
    std::memcpy(&factor, tensor->data.data() + at, sizeof factor);
    factors.push_back(static_cast<double>(factor));
  }
  return factors;
}

Json list(const std::vector<double>& numbers) {
  Json::Array list;
  for (const double number : numbers) list.emplace_back(number);
  return list;
}

// Sets one list of factors that applies to every context length. This is LongRoPE with two equal lists and an
// attention_factor of 1.
void set_factors(const std::vector<double>& factors, std::int64_t context, Json& rope) {
  if (std::ranges::all_of(factors, [](double factor) { return factor == 1.0; })) return;
  rope.set("rope_type", "longrope");
  rope.set("short_factor", list(factors));
  rope.set("long_factor", list(factors));
  rope.set("original_max_position_embeddings", std::max<std::int64_t>(2, context));
  rope.set("attention_factor", 1.0);
}

Status copy(const ConfigWriter& writer, std::string_view name, const char* member, Json& rope) {
  if (const std::optional<double> number = TRY(writer.optional_number(name))) rope.set(member, *number);
  return ok_status();
}

Status set_original_context(const ConfigWriter& writer, Json& rope) {
  if (const auto original = TRY(writer.optional_integer("rope.scaling.original_context_length")))
    rope.set("original_max_position_embeddings", *original);
  return ok_status();
}

Status set_yarn(const ConfigWriter& writer, Json& rope) {
  rope.set("rope_type", "yarn");
  TRY(copy(writer, "rope.scaling.factor", "factor", rope));
  TRY(set_original_context(writer, rope));
  TRY(copy(writer, "rope.scaling.yarn_beta_fast", "beta_fast", rope));
  TRY(copy(writer, "rope.scaling.yarn_beta_slow", "beta_slow", rope));
  // GGUF files of DeepSeek's models store a tenth of "mscale_all_dim", and do not store "mscale", which has the same
  // value as "mscale_all_dim" in these models.
  if (const auto multiplier = TRY(writer.optional_number("rope.scaling.yarn_log_multiplier")); multiplier) {
    rope.set("mscale", *multiplier * 10);
    rope.set("mscale_all_dim", *multiplier * 10);
  }
  return ok_status();
}

Status set_longrope(const ConfigWriter& writer, Json& rope) {
  rope.set("rope_type", "longrope");
  rope.set("short_factor", list(TRY(read_factors(writer.model(), kShortFactors))));
  rope.set("long_factor", list(TRY(read_factors(writer.model(), kLongFactors))));
  TRY(set_original_context(writer, rope));
  return copy(writer, "rope.scaling.attn_factor", "attention_factor", rope);
}

Status set_scaling(const ConfigWriter& writer, Json& rope) {
  const std::string type = TRY(writer.optional_string("rope.scaling.type")).value_or("none");
  if (writer.has_tensor(kLongFactors) && (type == "none" || type == "longrope")) return set_longrope(writer, rope);
  if (type == "yarn") return set_yarn(writer, rope);
  if (type == "linear") {
    rope.set("rope_type", "linear");
    return copy(writer, "rope.scaling.factor", "factor", rope);
  }
  if (type != "none")
    return unimplemented(writer
                             .wrong("rope.scaling.type",
                                    "none, linear, yarn, and longrope with its two tensors of "
                                    "factors")
                             .message());
  if (!writer.has_tensor(kFactors)) return ok_status();
  const std::int64_t context = TRY(writer.integer("context_length"));
  set_factors(TRY(read_factors(writer.model(), kFactors)), context, rope);
  return ok_status();
}

}  // namespace

Result<Json> gguf_rope_parameters(const ConfigWriter& writer, std::int64_t head_dim) {
  Json rope = Json::object();
  rope.set("rope_type", "default");
  TRY(copy(writer, "rope.freq_base", "rope_theta", rope));
  const std::optional<std::int64_t> rotated = TRY(writer.optional_integer("rope.dimension_count"));
  if (rotated && *rotated < head_dim)
    rope.set("partial_rotary_factor", static_cast<double>(*rotated) / static_cast<double>(head_dim));
  TRY(set_scaling(writer, rope));
  return rope;
}

Result<std::vector<double>> gguf_rope_factors(const GgufModel& model) { return read_factors(model, kFactors); }

}  // namespace tessera
