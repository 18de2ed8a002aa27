// Reads the settings of ModelOpt, NVIDIA's exporter. They name one algorithm for all linears, or one for each linear
// ("MIXED_PRECISION"). The settings are in hf_quant_config.json. Newer versions of ModelOpt repeat them in config.json.
#include <algorithm>
#include <cctype>

#include "tessera/model/formats/format_rules.h"

namespace tessera {
namespace {

constexpr std::string_view kMixedAlgorithm = "MIXED_PRECISION";
constexpr std::string_view kAlgorithms = "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, W4A16_NVFP4";
constexpr std::int64_t kFp8BlockSide = 128;
constexpr std::int64_t kNvfp4Columns = 16;

// Returns the text in upper case. hf_quant_config.json uses upper case, and config.json sometimes uses lower case.
std::string upper_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

WeightFormat scaled_fp8(std::int64_t rows, std::int64_t cols, WeightFormat::Inputs inputs) {
  return {.values = WeightFormat::Values::kE4M3,
          .scale = "weight_scale",
          .block_rows = rows,
          .block_cols = cols,
          .inputs = inputs};
}

WeightFormat modelopt_nvfp4() {
  return {.values = WeightFormat::Values::kE2M1,
          .spelling = WeightFormat::Spelling::kNvfp4,
          .block_rows = 1,
          .block_cols = kNvfp4Columns};
}

// Returns the format that "quant_algo" names, or nothing if it says that linears are not quantised.
Result<std::optional<WeightFormat>> algorithm_format(const Fields& fields, std::string_view accepted) {
  using Inputs = WeightFormat::Inputs;
  if (!fields.has("quant_algo")) return fields.unsupported("quant_algo", accepted);
  const std::string name = upper_case(TRY(fields.optional_string("quant_algo")).value_or("NONE"));
  std::optional<WeightFormat> format;
  if (name == "NONE" || name == "UNQUANTIZED") return format;
  if (name == "FP8") format = scaled_fp8(0, 0, Inputs::kTensor);
  if (name == "FP8_PER_CHANNEL_PER_TOKEN") format = scaled_fp8(1, 0, Inputs::kToken);
  if (name == "FP8_PB_WO") format = scaled_fp8(kFp8BlockSide, kFp8BlockSide, Inputs::kPlain);
  if (name == "NVFP4" || name == "W4A16_NVFP4") format = modelopt_nvfp4();
  if (!format) return fields.unsupported("quant_algo", accepted);
  const std::optional<std::int64_t> size = TRY(fields.optional_int("group_size", 0, 1 << 16));
  if (format->block_cols > 0 && size && *size != format->block_cols)
    return fields.unsupported("group_size", std::to_string(format->block_cols));
  return format;
}

// Returns the module patterns of the group that has this format. Adds a group if none has it. The next call invalidates
// the returned reference.
NamePatterns& modules_of(const WeightFormat& format, FormatRules& rules) {
  auto group = std::ranges::find(rules.groups, format, &FormatGroup::format);
  if (group == rules.groups.end()) group = rules.groups.insert(group, FormatGroup{.format = format});
  return group->modules;
}

// Reads "quantized_layers", which gives an algorithm to a module and to all modules inside it.
Status read_layers(const Fields& fields, FormatRules& rules) {
  const Json* layers = fields.find("quantized_layers");
  if (layers == nullptr || !layers->is_object()) return fields.wrong("quantized_layers", "an object of modules");
  const Fields of_layers = fields.inside("quantized_layers", *layers);
  for (const auto& [module, settings] : layers->as_object()) {
    if (!settings.is_object()) return of_layers.wrong(module, "an object with quant_algo");
    const std::string accepted = std::string(kAlgorithms) + ", UNQUANTIZED";
    const std::optional<WeightFormat> format = TRY(algorithm_format(of_layers.inside(module, settings), accepted));
    TRY(add_pattern(fields, "quantized_layers", module, format ? modules_of(*format, rules) : rules.unquantised));
  }
  return ok_status();
}

// Reads "config_groups", which older versions of ModelOpt write to config.json instead of "quantized_layers".
Status read_modelopt_groups(const Fields& fields, const Json& groups, FormatRules& rules) {
  if (!groups.is_object()) return fields.wrong("config_groups", "an object of groups");
  const Fields of_groups = fields.inside("config_groups", groups);
  for (const auto& [name, json] : groups.as_object()) {
    const Fields group = of_groups.inside(name, json);
    const Json* weights = group.find("weights");
    if (weights == nullptr || !weights->is_object()) return group.wrong("weights", "an object");
    const Fields of_weights = group.inside("weights", *weights);
    const std::string type = TRY(of_weights.optional_string("type")).value_or("float");
    if (type != "float") return of_weights.unsupported("type", "float");
    const std::optional<std::int64_t> bits = TRY(of_weights.optional_int("num_bits", 1, 64));
    const std::optional<std::int64_t> size = TRY(of_weights.optional_int("group_size", 0, 1 << 16));
    const std::int64_t columns = size.value_or(0);
    FormatGroup read;
    if (bits == 8 && columns == 0) {
      read.format = scaled_fp8(0, 0, WeightFormat::Inputs::kTensor);
    } else if (bits == 4 && columns == kNvfp4Columns) {
      read.format = modelopt_nvfp4();
    } else {
      return of_weights.unsupported("num_bits", "8 without group_size, 4 with a group_size of 16");
    }
    if (group.find("targets") == nullptr) return group.wrong("targets", "a list of module names");
    TRY(read_modules(group, "targets", read.modules));
    rules.groups.push_back(std::move(read));
  }
  return ok_status();
}

// Checks that the field `key` has the same value in both files, if both have it. Upper and lower case count as equal.
Status check_same(const Fields& fields, const Fields& beside, const char* key) {
  const std::optional<std::string> here = TRY(fields.optional_string(key));
  const std::optional<std::string> there = TRY(beside.optional_string(key));
  if (!here || !there || upper_case(*here) == upper_case(*there)) return ok_status();
  return fields.wrong(key, "\"" + *there + "\", as in hf_quant_config.json, or no such field");
}

}  // namespace

Result<FormatRules> read_modelopt(const Fields* fields, const Fields* beside) {
  if (fields != nullptr && beside != nullptr) TRY(check_same(*fields, *beside, "quant_algo"));
  // Returns the file that has the field `key`. If both files have it, returns config.json.
  const auto with = [&](const char* key) -> const Fields& {
    return fields == nullptr || (fields->find(key) == nullptr && beside != nullptr) ? *beside : *fields;
  };
  FormatRules rules{.method = "modelopt"};
  const Fields& algorithm = with("quant_algo");
  const std::string name = TRY(algorithm.optional_string("quant_algo")).value_or("");
  if (upper_case(name) == kMixedAlgorithm) {
    const Fields& layers = with("quantized_layers");
    const Json* groups = layers.find("config_groups");
    if (groups != nullptr && layers.find("quantized_layers") == nullptr) {
      TRY(read_modelopt_groups(layers, *groups, rules));
    } else {
      TRY(read_layers(layers, rules));
    }
  } else {
    const std::string accepted = std::string(kAlgorithms) + ", MIXED_PRECISION";
    const std::optional<WeightFormat> format = TRY(algorithm_format(algorithm, accepted));
    if (format) rules.groups.push_back({.format = *format, .every_linear = true});
  }
  for (const Fields* file : {fields, beside}) {
    if (file == nullptr) continue;
    for (const char* key : {"ignore", "exclude_modules"}) TRY(read_modules(*file, key, rules.unquantised));
    for (const char* key : {"kv_cache_quant_algo", "kv_cache_scheme"})
      if (!rules.kv_cache) rules.kv_cache = TRY(read_kv_cache(*file, key));
  }
  return rules;
}

}  // namespace tessera
