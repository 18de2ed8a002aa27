#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tessera/base/json_fields.h"
#include "tessera/model/config/rope.h"

namespace tessera {
namespace {

constexpr std::pair<RopeType, std::string_view> kTypes[] = {
    {RopeType::kDefault, "default"},
    {RopeType::kLinear, "linear"},
    {RopeType::kLlama3, "llama3"},
    {RopeType::kYarn, "yarn"},
    {RopeType::kLongRope, "longrope"},
    {RopeType::kLongRope, "su"},  // Phi 3's old name
    {RopeType::kProportional, "proportional"},
};

constexpr double kMaxFactor = 1e6;
constexpr std::int64_t kMaxOriginalPositions = std::int64_t{1} << 27;
// θ must be above 1, because θ = 1 would give every pair the same frequency, and YaRN divides by log θ.
constexpr double kMinTheta = 1.001;
constexpr double kMaxTheta = 1e15;

constexpr const char* kQueryGrowth = "llama_4_scaling_beta";
constexpr double kMaxQueryGrowth = 100;

// Refuses keys that change the rotation in ways that rope.h does not describe. If the architecture always rotates the
// whole head, also refuses a partial_rotary_factor other than 1, unless the type is "proportional". `grows` says that
// the fields may have kQueryGrowth.
Status refuse_other_rotations(const Fields& fields, const RopeContext& context, RopeType type, bool grows = false) {
  const std::optional<double> partial = TRY(fields.optional_number("partial_rotary_factor", 0.0, 1.0));
  if (!context.partial_rotary && type != RopeType::kProportional && partial.value_or(1.0) != 1.0)
    return fields.unsupported("partial_rotary_factor", "1 (the whole head rotates)");
  if (!grows && fields.find(kQueryGrowth) != nullptr) return fields.unsupported(kQueryGrowth, "no such field");
  for (const char* key : {"full_attention", "sliding_attention"}) {
    if (fields.find(key) != nullptr) return fields.unsupported(key, "no such field");
  }
  return ok_status();
}

Result<RopeType> read_type(const Fields& fields, const RopeContext& context) {
  // Older files have the key "type", and newer files have "rope_type". If a file has both, Hugging Face reads
  // "rope_type".
  const char* key = fields.find("rope_type") != nullptr || fields.find("type") == nullptr ? "rope_type" : "type";
  const std::optional<std::string> name = TRY(fields.optional_string(key));
  if (!name || (*name == "mrope" && context.sections)) return RopeType::kDefault;
  for (const auto& [type, type_name] : kTypes) {
    if (*name == type_name) return type;
  }
  return fields.unsupported(
      key, fmt::format("default, linear, llama3, yarn, longrope, proportional{}", context.sections ? ", mrope" : ""));
}

// Reads "mrope_section", which assigns pairs of dimensions to three kinds of position: time, height and width. A text
// token has the same position in all three, so it is rotated as if its position were one number. A text-only model
// therefore needs no sections.
Status read_sections(const Fields& fields, std::int64_t pairs, const RopeContext& context, RopeConfig& rope) {
  rope.interleaved_sections = TRY(fields.optional_bool("mrope_interleaved")).value_or(context.interleaved_by_default);
  rope.interleaved_sections = rope.interleaved_sections && context.sections;
  if (fields.find("mrope_section") == nullptr) {
    if (!context.sections) return ok_status();
    rope.sections = context.default_sections;
    if (std::accumulate(rope.sections.begin(), rope.sections.end(), std::int64_t{0}) == pairs) return ok_status();
    return fields.wrong("mrope_section", fmt::format("three numbers that add up to the {} rotated pairs", pairs));
  }
  const std::vector<double> sections =
      TRY(fields.required_numbers("mrope_section", 3, 0.0, static_cast<double>(pairs)));
  const bool whole = std::ranges::all_of(sections, [](double count) { return count == std::floor(count); });
  if (!whole || std::accumulate(sections.begin(), sections.end(), 0.0) != static_cast<double>(pairs))
    return fields.wrong("mrope_section", fmt::format("three numbers that add up to the {} rotated pairs", pairs));
  if (!context.sections) return ok_status();
  for (const double count : sections) rope.sections.push_back(static_cast<std::int64_t>(count));
  return ok_status();
}

// Reads partial_rotary_factor. Its value among the variant's members overrides its value at the top level.
Status read_partial_rotary(const Fields& top, const Fields& scaling, const RopeContext& context, RopeConfig& rope) {
  TRY(refuse_other_rotations(top, context, rope.type));
  TRY(refuse_other_rotations(scaling, context, rope.type, context.query_growth && rope.type == RopeType::kYarn));
  const Fields& fields = scaling.find("partial_rotary_factor") != nullptr ? scaling : top;
  rope.partial_rotary_factor =
      TRY(fields.optional_number("partial_rotary_factor", 0.0, 1.0)).value_or(context.default_part);
  const std::int64_t rotated = rotary_dim(rope, context.head_dim);
  if (rotated < 2 || rotated % 2 != 0)
    return fields.wrong(
        "partial_rotary_factor",
        fmt::format("a part that makes an even number of the head's {} dimensions, 2 or more", context.head_dim));
  return read_sections(scaling.find("mrope_section") != nullptr ? scaling : top, rotated / 2, context, rope);
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
  rope.query_growth = TRY(fields.optional_number(kQueryGrowth, 0.0, kMaxQueryGrowth)).value_or(0.0);
  return ok_status();
}

Status read_longrope(const Fields& fields, const RopeContext& context, RopeConfig& rope) {
  const auto pairs = static_cast<std::size_t>(rotary_dim(rope, context.head_dim) / 2);
  rope.short_factor = TRY(fields.required_numbers("short_factor", pairs, 1e-3, kMaxFactor));
  rope.long_factor = TRY(fields.required_numbers("long_factor", pairs, 1e-3, kMaxFactor));
  rope.attention_factor = TRY(fields.optional_number("attention_factor", 1e-3, kMaxFactor));
  return ok_status();
}

// Reads `factor`. If it is absent, the factor of yarn and longrope is max_position_embeddings divided by the original
// context, and the factor of proportional is 1. For other types an absent factor is an error.
Status read_factor(const Fields& scaling, const RopeContext& context, RopeConfig& rope) {
  const std::optional<double> factor = TRY(scaling.optional_number("factor", 1.0, kMaxFactor));
  if (!factor && (rope.type == RopeType::kLongRope || rope.type == RopeType::kYarn)) {
    rope.factor = std::max(1.0, static_cast<double>(context.max_position_embeddings) /
                                    static_cast<double>(rope.original_max_position_embeddings));
    return ok_status();
  }
  if (!factor && rope.type == RopeType::kProportional) return ok_status();
  rope.factor = TRY(scaling.required_number("factor", 1.0, kMaxFactor));
  return ok_status();
}

// Reads the variant of the rotation. `scaling` has the variant's members, and `top` has the other members of
// config.json.
Result<RopeConfig> read_scaling(const Fields& top, const Fields& scaling, const RopeContext& context) {
  RopeConfig rope;
  const std::optional<double> outer_theta = TRY(top.optional_number("rope_theta", kMinTheta, kMaxTheta));
  const std::optional<double> inner_theta = TRY(scaling.optional_number("rope_theta", kMinTheta, kMaxTheta));
  rope.theta = inner_theta.value_or(outer_theta.value_or(rope.theta));
  rope.type = TRY(read_type(scaling, context));
  TRY(read_partial_rotary(top, scaling, context, rope));
  for (const char* key : {"short_factor", "long_factor"}) {
    if (rope.type != RopeType::kLongRope && scaling.find(key) != nullptr)
      return scaling.unsupported(key, "no such field but for rope_type longrope");
  }
  if (rope.type == RopeType::kDefault) return rope;

  if (rope.type != RopeType::kLinear && rope.type != RopeType::kProportional) {
    // A value at the top level overrides a value inside `scaling`, as in transformers.
    const bool outer = top.find("original_max_position_embeddings") != nullptr;
    // The least accepted original context. It is 2 for longrope, which divides by the logarithm of this length.
    const std::int64_t least = rope.type == RopeType::kLongRope ? 2 : 1;
    const std::optional<std::int64_t> original =
        TRY((outer ? top : scaling).optional_int("original_max_position_embeddings", least, kMaxOriginalPositions));
    rope.original_max_position_embeddings = original.value_or(std::max(least, context.max_position_embeddings));
  }
  TRY(read_factor(scaling, context, rope));
  if (rope.type == RopeType::kLlama3) TRY(read_llama3(scaling, rope));
  if (rope.type == RopeType::kYarn) TRY(read_yarn(scaling, rope));
  if (rope.type == RopeType::kLongRope) TRY(read_longrope(scaling, context, rope));
  return rope;
}

}  // namespace

std::string_view rope_type_name(RopeType type) {
  for (const auto& [value, name] : kTypes) {
    if (value == type) return name;
  }
  return "unknown";
}

Result<RopeConfig> read_rope_config(const Json& config, const std::string& file, const RopeContext& context) {
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
  return read_scaling(top, Fields(*scaling, file, std::string(key) + "."), context);
}

}  // namespace tessera
