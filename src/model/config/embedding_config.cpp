#include "tessera/model/config/embedding_config.h"
#include "tessera/model/weights/model_path.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxModulesBytes = std::size_t{1} << 20;

struct Mode {
  std::string_view flag;  // the field of older files that selects this mode
  std::string_view name;  // the value of "pooling_mode" that selects it
  Pooling pooling;        // kNone if this mode is not supported
};
constexpr std::array<Mode, 6> kModes = {{
    {"pooling_mode_cls_token", "cls", Pooling::kFirst},
    {"pooling_mode_mean_tokens", "mean", Pooling::kMean},
    {"pooling_mode_lasttoken", "lasttoken", Pooling::kLast},
    {"pooling_mode_max_tokens", "max", Pooling::kNone},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pooling::kNone},
    {"pooling_mode_weightedmean_tokens", "weightedmean", Pooling::kNone},
}};
constexpr std::string_view kAccepted = "one of cls, mean and lasttoken";

Result<Pooling> read_named_mode(const Fields& fields, const std::string& name) {
  for (const Mode& mode : kModes)
    if (mode.name == name && mode.pooling != Pooling::kNone) return mode.pooling;
  return fields.unsupported("pooling_mode", kAccepted);
}

Result<Pooling> read_mode(const Fields& fields) {
  if (const std::optional<std::string> name = TRY(fields.optional_string("pooling_mode")))
    return read_named_mode(fields, *name);
  Pooling chosen = Pooling::kNone;
  std::string_view first;
  for (const Mode& mode : kModes) {
    if (!TRY(fields.optional_bool(mode.flag)).value_or(false)) continue;
    if (mode.pooling == Pooling::kNone)
      return fields.unsupported(mode.flag, fmt::format("false; {} is served", kAccepted));
    if (!first.empty())
      return fields.unsupported(mode.flag, fmt::format("false where \"{}\" is true: one way of pooling", first));
    first = mode.flag;
    chosen = mode.pooling;
  }
  if (first.empty()) return fields.wrong("pooling_mode", fmt::format("{}, or one of their flags true", kAccepted));
  return chosen;
}

Result<Pooling> read_pooling(const std::string& path, std::int64_t hidden_size) {
  const Json json = TRY(read_json_object(path).with_context("the module Pooling of modules.json"));
  const Fields fields(json, path);
  const std::optional<std::int64_t> size =
      TRY(fields.optional_int("word_embedding_dimension", 1, std::int64_t{1} << 31));
  if (size && *size != hidden_size)
    return fields.wrong("word_embedding_dimension", fmt::format("{}, the model's hidden size", hidden_size));
  return read_mode(fields);
}

// Returns the last part of a name like "sentence_transformers.models.Pooling".
std::string_view last_part(std::string_view type) {
  const std::size_t dot = type.rfind('.');
  return dot == std::string_view::npos ? type : type.substr(dot + 1);
}

}  // namespace

std::string_view pooling_name(Pooling pooling) {
  switch (pooling) {
    case Pooling::kNone: return "none";
    case Pooling::kLast: return "last";
    case Pooling::kMean: return "mean";
    case Pooling::kFirst: return "first";
  }
  return "unknown";
}

Result<std::optional<EmbeddingConfig>> EmbeddingConfig::read(const std::string& folder, std::int64_t hidden_size) {
  const std::string path = (fs::path(folder) / "modules.json").string();
  std::error_code error;
  if (!fs::exists(path, error)) return std::optional<EmbeddingConfig>();
  const Json modules = TRY(Json::parse(TRY(read_text_file(path, kMaxModulesBytes)), path));
  if (!modules.is_array()) return invalid_argument(fmt::format("{}: accepted: a list of modules", path));
  EmbeddingConfig config{.pooling = Pooling::kNone, .normalise = false};
  std::optional<Status> other;  // error of an unsupported module; returned only if the model is an embedding model
  for (std::size_t i = 0; i < modules.as_array().size(); ++i) {
    const Json& module = modules.as_array()[i];
    if (!module.is_object()) return invalid_argument(fmt::format("{}: module {}: accepted: an object", path, i));
    const Fields fields(module, path, fmt::format("[{}].", i));
    const std::string type = TRY(fields.optional_string("type")).value_or("");
    const std::string_view name = last_part(type);
    if (name == "Pooling") {
      const fs::path module_folder = TRY(fields.optional_string("path")).value_or("");
      if (!stays_inside(module_folder)) return fields.wrong("path", "a folder of the model's");
      config.pooling = TRY(read_pooling((fs::path(folder) / module_folder / "config.json").string(), hidden_size));
    } else if (name == "Normalize") {
      config.normalise = true;
    } else if (name != "Transformer" && !other) {
      other = fields.unsupported("type", "modules named Transformer, Pooling and Normalize");
    }
  }
  if (config.pooling == Pooling::kNone) return std::optional<EmbeddingConfig>();
  if (other) return *other;
  return std::optional(config);
}

std::vector<float> EmbeddingConfig::finish(std::span<const float> pooled, std::int64_t dimensions) const {
  const std::span<const float> kept = pooled.first(static_cast<std::size_t>(dimensions));
  std::vector<float> made(kept.begin(), kept.end());
  double squares = 0;
  for (const float value : made) squares += static_cast<double>(value) * static_cast<double>(value);
  if (!normalise || squares == 0) return made;
  const double length = std::sqrt(squares);
  for (float& value : made) value = static_cast<float>(static_cast<double>(value) / length);
  return made;
}

}  // namespace tessera
