#include "tessera/model/adapters/adapter_config.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <system_error>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/model/adapters/adapter_layout.h"

namespace tessera {
namespace {

// These limits are far above the values of published adapters. Within them no arithmetic on the values overflows.
constexpr std::int64_t kMostRank = 65536;
constexpr double kMostAlpha = 1e6;

// Settings that are not supported, because they change what the tensors mean, or which tensors there are.
constexpr std::string_view kRefused[] = {"use_dora",
                                         "use_qalora",
                                         "use_bdlora",
                                         "lora_bias",
                                         "kasa_config",
                                         "arrow_config",
                                         "layer_replication",
                                         "alora_invocation_tokens",
                                         "trainable_token_indices"};

// Returns whether a setting is in use. It is not in use if its value is false, an empty list or an empty object.
// `value` is null if the setting is absent or null (Fields::find()).
bool is_set(const Json* value) {
  if (value == nullptr) return false;
  if (value->is_bool()) return value->as_bool();
  if (value->is_array()) return !value->as_array().empty();
  if (value->is_object()) return !value->as_object().empty();
  return true;
}

// Reads modules_to_save, and returns the last word of each module's name.
Result<std::vector<std::string>> read_saved(const Fields& fields) {
  std::vector<std::string> words;
  const Json* saved = fields.find("modules_to_save");
  if (!is_set(saved)) return words;
  constexpr std::string_view kAccepted = "a list of \"lm_head\" and \"embed_tokens\"";
  if (!saved->is_array()) return fields.wrong("modules_to_save", kAccepted);
  for (const Json& module : saved->as_array()) {
    if (!module.is_string() || !can_be_saved(last_word(module.as_string())))
      return fields.unsupported("modules_to_save", kAccepted);
    words.emplace_back(last_word(module.as_string()));
  }
  return words;
}

Status check_kind(const Fields& fields) {
  const std::string type = TRY(fields.optional_string("peft_type")).value_or("LORA");
  if (type != "LORA") return fields.unsupported("peft_type", "LORA");
  for (const std::string_view name : kRefused)
    if (is_set(fields.find(name))) return fields.unsupported(name, "adapters without it");
  const std::string bias = TRY(fields.optional_string("bias")).value_or("none");
  if (bias != "none") return fields.unsupported("bias", "\"none\"");
  return ok_status();
}

// Reads the setting `key`, an object whose keys are patterns of module names and whose values are numbers. Calls
// `add(inside, pattern, name)` for each member. `inside` reads the object's members, `pattern` is the member's key, and
// `name` matches the names of the modules that the pattern means.
template <class Add>
Status read_patterns(const Fields& fields, std::string_view key, const Add& add) {
  const Json* patterns = fields.find(key);
  if (patterns == nullptr) return ok_status();
  if (!patterns->is_object()) return fields.wrong(key, "an object of modules and numbers");
  const Fields inside = fields.inside(key, *patterns);
  for (const auto& [pattern, value] : patterns->as_object()) {
    NamePatterns name;
    // PEFT requires that the pattern matches the whole name, or the end of the name after a dot.
    TRY(name.add(fmt::format("re:(.*\\.)?({})$", pattern)).with_context(fmt::format("{}: {}", fields.file(), key)));
    TRY(add(inside, pattern, std::move(name)));
  }
  return ok_status();
}

template <class T>
Result<T> first_match(const std::vector<std::pair<NamePatterns, T>>& values, std::string_view module, T otherwise) {
  for (const auto& [pattern, value] : values)
    if (TRY(pattern.matches(module))) return value;
  return otherwise;
}

}  // namespace

Result<AdapterConfig> AdapterConfig::read(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "adapter_config.json").string();
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return not_found(
        fmt::format("{} has no adapter_config.json; an adapter is a folder that PEFT has written", folder));
  const Json json = TRY(read_json_object(path));
  const Fields fields(json, path);
  TRY(check_kind(fields));
  AdapterConfig config;
  config.rank_ = TRY(fields.required_int("r", 1, kMostRank));
  config.alpha_ = TRY(fields.optional_number("lora_alpha", 0, kMostAlpha)).value_or(config.alpha_);
  config.rslora_ = TRY(fields.optional_bool("use_rslora")).value_or(false);
  config.saved_ = TRY(read_saved(fields));
  config.ties_weights_ = TRY(fields.optional_bool("ensure_weight_tying")).value_or(false);
  config.base_model_ = TRY(fields.optional_string("base_model_name_or_path")).value_or("");
  TRY(read_patterns(fields, "rank_pattern", [&](const Fields& in, const std::string& key, NamePatterns name) -> Status {
    const std::int64_t rank = TRY(in.required_int(key, 1, kMostRank));
    config.ranks_.emplace_back(std::move(name), rank);
    return ok_status();
  }));
  TRY(read_patterns(fields, "alpha_pattern",
                    [&](const Fields& in, const std::string& key, NamePatterns name) -> Status {
                      const double alpha = TRY(in.required_number(key, 0, kMostAlpha));
                      config.alphas_.emplace_back(std::move(name), alpha);
                      return ok_status();
                    }));
  return config;
}

Result<std::int64_t> AdapterConfig::rank_of(std::string_view module) const {
  return first_match(ranks_, module, rank_);
}

Result<double> AdapterConfig::scale_of(std::string_view module, std::int64_t rank) const {
  const double alpha = TRY(first_match(alphas_, module, alpha_));
  const auto divisor = static_cast<double>(rank);
  return alpha / (rslora_ ? std::sqrt(divisor) : divisor);
}

}  // namespace tessera
