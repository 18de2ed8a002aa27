#include "tessera/model/rope.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>
#include <utility>

#include "tessera/model/fields.h"

namespace tessera {
namespace {

constexpr std::pair<RopeType, std::string_view> kTypes[] = {
    {RopeType::kDefault, "default"},
    {RopeType::kLinear, "linear"},
    {RopeType::kLlama3, "llama3"},
    {RopeType::kYarn, "yarn"},
};

constexpr double kMaxFactor = 1e6;
constexpr std::int64_t kMaxOriginalPositions = std::int64_t{1} << 27;
// θ = 1 would give every pair the same frequency, and YaRN divides by log θ.
constexpr double kMinTheta = 1.001;
constexpr double kMaxTheta = 1e15;

// Keys that change the rotation in a way the formulas here do not know.
Status refuse_other_rotations(const Fields& fields) {
  const std::optional<double> partial = TRY(fields.optional_number("partial_rotary_factor", 0.0, 1.0));
  if (partial.value_or(1.0) != 1.0) return fields.unsupported("partial_rotary_factor", "1 (the whole head rotates)");
  for (const char* key : {"mrope_section", "llama_4_scaling_beta", "full_attention", "sliding_attention"}) {
    if (fields.find(key) != nullptr) return fields.unsupported(key, "no such field");
  }
  return ok_status();
}

Result<RopeType> read_type(const Fields& fields) {
  // Hugging Face wrote "type" before "rope_type" and reads the latter first.
  const char* key = fields.find("rope_type") != nullptr || fields.find("type") == nullptr ? "rope_type" : "type";
  const std::optional<std::string> name = TRY(fields.optional_string(key));
  if (!name) return RopeType::kDefault;
  for (const auto& [type, type_name] : kTypes) {
    if (*name == type_name) return type;
  }
  return fields.unsupported(key, "default, linear, llama3, yarn");
}

Status read_llama3(const Fields& fields, RopeConfig& rope) {
  rope.low_freq_factor = TRY(fields.required_number("low_freq_factor", 1e-3, kMaxFactor));
  rope.high_freq_factor = TRY(fields.required_number("high_freq_factor", 1e-3, kMaxFactor));
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    return fields.wrong("high_freq_factor", "a number above low_freq_factor");
  }
  return ok_status();
}

Status read_yarn(const Fields& fields, RopeConfig& rope) {
  rope.beta_fast = TRY(fields.optional_number("beta_fast", 1e-3, kMaxFactor)).value_or(rope.beta_fast);
  rope.beta_slow = TRY(fields.optional_number("beta_slow", 1e-3, kMaxFactor)).value_or(rope.beta_slow);
  if (rope.beta_fast < rope.beta_slow) return fields.wrong("beta_fast", "a number not below beta_slow");
  rope.truncate = TRY(fields.optional_bool("truncate")).value_or(rope.truncate);
  rope.attention_factor = TRY(fields.optional_number("attention_factor", 1e-3, kMaxFactor));
  rope.mscale = TRY(fields.optional_number("mscale", 0.0, kMaxFactor));
  rope.mscale_all_dim = TRY(fields.optional_number("mscale_all_dim", 0.0, kMaxFactor));
  return ok_status();
}

// `scaling` holds the variant's members, `top` the rest of config.json.
Result<RopeConfig> read_scaling(const Fields& top, const Fields& scaling, std::int64_t max_position_embeddings) {
  RopeConfig rope;
  const std::optional<double> outer_theta = TRY(top.optional_number("rope_theta", kMinTheta, kMaxTheta));
  const std::optional<double> inner_theta = TRY(scaling.optional_number("rope_theta", kMinTheta, kMaxTheta));
  rope.theta = inner_theta.value_or(outer_theta.value_or(rope.theta));
  rope.type = TRY(read_type(scaling));
  TRY(refuse_other_rotations(top));
  TRY(refuse_other_rotations(scaling));
  if (rope.type == RopeType::kDefault) return rope;

  const std::optional<double> factor = TRY(scaling.optional_number("factor", 1.0, kMaxFactor));
  if (rope.type == RopeType::kLlama3 || rope.type == RopeType::kYarn) {
    // A value at the top level overrides the one inside, as in transformers.
    const bool outer = top.find("original_max_position_embeddings") != nullptr;
    const std::optional<std::int64_t> original =
        TRY((outer ? top : scaling).optional_int("original_max_position_embeddings", 1, kMaxOriginalPositions));
    rope.original_max_position_embeddings = original.value_or(max_position_embeddings);
  }
  if (!factor && rope.type == RopeType::kYarn) {
    rope.factor = std::max(
        1.0, static_cast<double>(max_position_embeddings) / static_cast<double>(rope.original_max_position_embeddings));
  } else {
    rope.factor = TRY(scaling.required_number("factor", 1.0, kMaxFactor));
  }
  if (rope.type == RopeType::kLlama3) TRY(read_llama3(scaling, rope));
  if (rope.type == RopeType::kYarn) TRY(read_yarn(scaling, rope));
  return rope;
}

void scale_llama3(const RopeConfig& rope, std::vector<float>& inv_freq) {
  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto span = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  const auto context = static_cast<float>(rope.original_max_position_embeddings);
  const auto old_context = static_cast<double>(rope.original_max_position_embeddings);
  const auto longest = static_cast<float>(old_context / rope.low_freq_factor);
  const auto shortest = static_cast<float>(old_context / rope.high_freq_factor);
  for (float& f : inv_freq) {
    const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / f;
    if (wavelength < shortest) continue;
    if (wavelength > longest) {
      f /= factor;
      continue;
    }
    const float smooth = (context / wavelength - low) / span;
    f = (1.0f - smooth) * f / factor + smooth * f;
  }
}

void scale_yarn(const RopeConfig& rope, std::int64_t head_dim, std::vector<float>& inv_freq) {
  const auto dim = static_cast<double>(head_dim);
  // The dimension whose pair makes `rotations` turns over the old context.
  const auto dimension_of = [&](double rotations) {
    const double wavelengths =
        static_cast<double>(rope.original_max_position_embeddings) / (rotations * 2.0 * std::numbers::pi);
    return dim * std::log(wavelengths) / (2.0 * std::log(rope.theta));
  };
  double low = dimension_of(rope.beta_fast);
  double high = dimension_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;  // as published, against division by zero
  const auto factor = static_cast<float>(rope.factor);
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    const float position_frequency =
        std::pow(static_cast<float>(rope.theta), static_cast<float>(2 * i) / static_cast<float>(head_dim));
    inv_freq[i] = 1.0f / (factor * position_frequency) * (1.0f - keep) + inv_freq[i] * keep;
  }
}

}  // namespace

std::string_view rope_type_name(RopeType type) {
  for (const auto& [value, name] : kTypes) {
    if (value == type) return name;
  }
  return "unknown";
}

Result<RopeConfig> read_rope_config(const Json& config, const std::string& file, std::int64_t max_position_embeddings) {
  const Fields top(config, file);
  const Json* old_spelling = top.find("rope_scaling");
  const Json* new_spelling = top.find("rope_parameters");
  if (old_spelling != nullptr && new_spelling != nullptr && *old_spelling != *new_spelling) {
    return top.wrong("rope_scaling", "no such field beside a rope_parameters that differs");
  }
  const char* key = new_spelling != nullptr ? "rope_parameters" : "rope_scaling";
  const Json* scaling = new_spelling != nullptr ? new_spelling : old_spelling;
  const Json none = Json::object();
  if (scaling == nullptr) scaling = &none;
  if (!scaling->is_object()) return top.wrong(key, "an object or null");
  return read_scaling(top, Fields(*scaling, file, std::string(key) + "."), max_position_embeddings);
}

std::vector<float> compute_inv_freq(const RopeConfig& rope, std::int64_t head_dim) {
  assert(head_dim > 0 && head_dim % 2 == 0);
  std::vector<float> inv_freq(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    inv_freq[i] = 1.0f / std::pow(static_cast<float>(rope.theta), exponent);
  }
  switch (rope.type) {
    case RopeType::kDefault: break;
    case RopeType::kLinear:
      for (float& f : inv_freq) f /= static_cast<float>(rope.factor);
      break;
    case RopeType::kLlama3: scale_llama3(rope, inv_freq); break;
    case RopeType::kYarn: scale_yarn(rope, head_dim, inv_freq); break;
  }
  return inv_freq;
}

float attention_scaling(const RopeConfig& rope) {
  if (rope.type != RopeType::kYarn) return 1.0f;
  if (rope.attention_factor) return static_cast<float>(*rope.attention_factor);
  const auto scale = [&](double mscale) {
    return rope.factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(rope.factor) + 1.0;
  };
  const double mscale = rope.mscale.value_or(0.0);
  const double mscale_all_dim = rope.mscale_all_dim.value_or(0.0);
  if (mscale != 0.0 && mscale_all_dim != 0.0) return static_cast<float>(scale(mscale) / scale(mscale_all_dim));
  return static_cast<float>(scale(1.0));
}

}  // namespace tessera
