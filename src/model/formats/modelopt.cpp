// ModelOpt, NVIDIA's exporter: one algorithm for all linears, or one for each ("MIXED_PRECISION"). hf_quant_config.json
// has the settings, and newer versions repeat them in config.json.
#include <algorithm>
#include <cctype>

#include "tessera/model/formats/format_rules.h"

namespace tessera {
namespace {

constexpr std::string_view kMixedAlgorithm = "MIXED_PRECISION";
constexpr std::string_view kAlgorithms = "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, W4A16_NVFP4";
constexpr std::int64_t kFp8BlockSide = 128;
constexpr std::int64_t kNvfp4Columns = 16;

// The exporter writes upper case, and config.json's copies also lower case.
std::string upper_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// Returns the format of "quant_algo", or nothing for linears that are not quantised.
Result<std::optional<WeightFormat>> algorithm_format(const Fields& fields, std::string_view accepted) {
  using Inputs = WeightFormat::Inputs;
  using Format = std::optional<WeightFormat>;
  const std::string name = upper_case(TRY(fields.optional_string("quant_algo")).value_or("NONE"));
  WeightFormat format{.values = WeightFormat::Values::kE4M3, .scale = "weight_scale"};
  std::optional<std::int64_t> group;
  if (name == "NONE" || name == "UNQUANTIZED") return Format();
  if (name == "FP8") {
    format.inputs = Inputs::kTensor;
  } else if (name == "FP8_PER_CHANNEL_PER_TOKEN") {
    format.block_rows = 1;
    format.inputs = Inputs::kToken;
  } else if (name == "FP8_PB_WO") {
    format.block_rows = format.block_cols = kFp8BlockSide;
    group = kFp8BlockSide;
  } else if (name == "NVFP4" || name == "W4A16_NVFP4") {
    format = {.values = WeightFormat::Values::kE2M1,
              .spelling = WeightFormat::Spelling::kNvfp4,
              .block_rows = 1,
              .block_cols = kNvfp4Columns};
    group = kNvfp4Columns;
  } else {
    return fields.unsupported("quant_algo", accepted);
  }
  const std::optional<std::int64_t> size = TRY(fields.optional_int("group_size", 1, 1 << 16));
  if (group && size && *size != *group) return fields.unsupported("group_size", std::to_string(*group));
  return Format(format);
}

// Adds a module to the group of its format.
Status add_module(const WeightFormat& format, std::string_view module, FormatRules& rules) {
  auto group = std::ranges::find(rules.groups, format, &FormatGroup::format);
  if (group == rules.groups.end()) group = rules.groups.insert(group, FormatGroup{.format = format});
  return group->modules.add(module);
}

// Reads "quantized_layers": an algorithm for each module, or for all that a module contains.
Status read_layers(const Fields& fields, FormatRules& rules) {
  const Json* layers = fields.find("quantized_layers");
  if (layers == nullptr || !layers->is_object()) return fields.wrong("quantized_layers", "an object of modules");
  const Fields of_layers = fields.inside("quantized_layers", *layers);
  for (const auto& [module, settings] : layers->as_object()) {
    if (!settings.is_object()) return of_layers.wrong(module, "an object with quant_algo");
    const std::string accepted = std::string(kAlgorithms) + ", UNQUANTIZED";
    const std::optional<WeightFormat> format = TRY(algorithm_format(of_layers.inside(module, settings), accepted));
    TRY(format ? add_module(*format, module, rules) : rules.plain.add(module));
  }
  return ok_status();
}

// Checks that two files that have the field have it alike.
Status check_same(const Fields& fields, const Fields& beside, const char* key) {
  const std::optional<std::string> here = TRY(fields.optional_string(key));
  const std::optional<std::string> there = TRY(beside.optional_string(key));
  if (!here || !there || upper_case(*here) == upper_case(*there)) return ok_status();
  return fields.wrong(key, "\"" + *there + "\", as in hf_quant_config.json, or no such field");
}

}  // namespace

Result<FormatRules> read_modelopt(const Fields* fields, const Fields* beside) {
  if (fields != nullptr && beside != nullptr) TRY(check_same(*fields, *beside, "quant_algo"));
  // Returns the file that has the field; config.json first.
  const auto with = [&](const char* key) -> const Fields& {
    return fields == nullptr || (fields->find(key) == nullptr && beside != nullptr) ? *beside : *fields;
  };
  FormatRules rules{.method = "modelopt"};
  const Fields& algorithm = with("quant_algo");
  const std::string name = TRY(algorithm.optional_string("quant_algo")).value_or("");
  if (upper_case(name) == kMixedAlgorithm) {
    TRY(read_layers(with("quantized_layers"), rules));
  } else {
    const std::string accepted = std::string(kAlgorithms) + ", MIXED_PRECISION";
    const std::optional<WeightFormat> format = TRY(algorithm_format(algorithm, accepted));
    if (format) rules.groups.push_back({.format = *format, .every_linear = true});
  }
  for (const Fields* file : {fields, beside}) {
    if (file == nullptr) continue;
    for (const char* key : {"ignore", "exclude_modules"}) TRY(read_modules(*file, key, rules.plain));
    for (const char* key : {"kv_cache_quant_algo", "kv_cache_scheme"})
      if (!rules.kv_cache) rules.kv_cache = TRY(read_kv_cache(*file, key));
  }
  return rules;
}

}  // namespace tessera
