#include "tessera/model/formats/weight_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "tessera/model/formats/format_rules.h"

namespace tessera {
namespace {

constexpr std::string_view kMethods =
    "fp8, fbgemm_fp8, compressed-tensors, modelopt, modelopt_fp4, modelopt_fp8, gptq, gptq_marlin, awq, awq_marlin, "
    "quark; mxfp4 for GPT-OSS alone";

constexpr std::string_view kModules = "a list of module names, and \"re:\" with a regular expression";

// Quantisation settings: `json` is the member `key` of the object `outer`.
struct Section {
  Fields outer;
  std::string_view key;
  const Json* json = nullptr;
};

// Returns the language model's quantisation settings. A nested config may have them inside or outside of "text_config".
std::optional<Section> find_section(const Fields& config) {
  std::vector<Fields> places;
  if (const Json* text = config.find("text_config")) places.push_back(config.inside("text_config", *text));
  places.push_back(config);
  for (const Fields& outer : places)
    for (const std::string_view key : {"quantization_config", "compression_config"})
      if (const Json* json = outer.find(key)) return Section{outer, key, json};
  return std::nullopt;
}

// Returns "quant_method". If it is absent, infers the method from the other members.
Result<std::string> read_method(const Fields& fields, std::string_view key) {
  if (const std::optional<std::string> method = TRY(fields.optional_string("quant_method"))) return *method;
  if (fields.find("quant_algo") != nullptr || fields.find("quantization") != nullptr) return std::string("modelopt");
  if (fields.find("config_groups") != nullptr || key == "compression_config") return std::string("compressed-tensors");
  return fields.unsupported("quant_method", kMethods);
}

// Reads one section. `modelopt` has the settings of hf_quant_config.json, or is null if that file does not exist.
Result<FormatRules> read_section(const Section& section, const Fields* modelopt) {
  if (!section.json->is_object()) return section.outer.wrong(section.key, "an object");
  const Fields fields = section.outer.inside(section.key, *section.json);
  const std::string method = TRY(read_method(fields, section.key));
  if (method == "modelopt" || method == "modelopt_fp4" || method == "modelopt_fp8") {
    const Json* inner = fields.find("quantization");
    if (inner == nullptr) return read_modelopt(&fields, modelopt);
    if (!inner->is_object()) return fields.wrong("quantization", "an object");
    const Fields inner_fields = fields.inside("quantization", *inner);
    return read_modelopt(&inner_fields, modelopt);
  }
  if (modelopt != nullptr) return fields.wrong("quant_method", "modelopt where hf_quant_config.json is there");
  if (method == "fp8") return read_fp8(fields);
  if (method == "fbgemm_fp8") return read_fbgemm_fp8(fields);
  if (method == "compressed-tensors") return read_compressed_tensors(fields);
  if (method == "gptq" || method == "gptq_marlin") return read_gptq(fields);
  if (method == "awq" || method == "awq_marlin") return read_awq(fields);
  if (method == "quark") return read_quark(fields);
  return fields.unsupported("quant_method", kMethods);
}

// Reads settings from a second file, in the folder of config.json. `beside` is the content of that second file.
Result<FormatRules> read_beside(const Section* section, const Json& beside, const std::filesystem::path& folder) {
  if (beside.find("bits") != nullptr) {
    // quantize_config.json repeats the settings of config.json. It is read only if config.json has no settings, as in
    // checkpoints of GPTQ's first versions.
    if (section != nullptr) return read_section(*section, nullptr);
    return read_gptq(Fields(beside, (folder / "quantize_config.json").string()));
  }
  const Fields outer(beside, (folder / "hf_quant_config.json").string());
  const Json* quantization = outer.find("quantization");
  if (quantization == nullptr || !quantization->is_object()) return outer.wrong("quantization", "an object");
  const Fields modelopt = outer.inside("quantization", *quantization);
  return section != nullptr ? read_section(*section, &modelopt) : read_modelopt(nullptr, &modelopt);
}

std::optional<StartFormat> kind_of(const WeightFormat& format) {
  switch (format.values) {
    case WeightFormat::Values::kE4M3: return StartFormat::kFp8;
    case WeightFormat::Values::kInt8: return StartFormat::kInt8;
    case WeightFormat::Values::kInt4: return StartFormat::kInt4;
    case WeightFormat::Values::kE2M1: return format.is_mxfp4() ? std::nullopt : std::optional(StartFormat::kNvfp4);
    case WeightFormat::Values::kUnquantised:
    case WeightFormat::Values::kBlocks: break;
  }
  return std::nullopt;
}

}  // namespace

Status add_pattern(const Fields& fields, std::string_view key, std::string_view pattern, NamePatterns& patterns) {
  const Status added = patterns.add(pattern);
  return added.ok() ? added : fields.wrong(key, fmt::format("{}; {}", kModules, added.message()));
}

Status read_modules(const Fields& fields, std::string_view key, NamePatterns& patterns) {
  const Json* list = fields.find(key);
  if (list == nullptr) return ok_status();
  if (!list->is_array()) return fields.wrong(key, kModules);
  for (const Json& module : list->as_array()) {
    if (!module.is_string()) return fields.wrong(key, kModules);
    TRY(add_pattern(fields, key, module.as_string(), patterns));
  }
  return ok_status();
}

Result<std::optional<KvCacheFormat>> read_kv_cache(const Fields& fields, std::string_view key) {
  using Found = std::optional<KvCacheFormat>;
  const std::string accepted = "null, \"FP8\", \"INT8\", \"NVFP4\", or an object with num_bits 8 and type";
  const Json* value = fields.find(key);
  if (value == nullptr) return Found();
  if (value->is_string()) {
    std::string word = value->as_string();
    std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (word == "none") return Found();
    // The first FP8 checkpoints state no type, but only whether the KV cache's scales are stored ("static") or not
    // ("dynamic").
    if (word == "static" || word == "dynamic") return Found({"fp8", word == "static"});
    if (word == "fp8" || word == "int8" || word == "nvfp4") return Found({word, true});
    return fields.unsupported(key, accepted);
  }
  const Json* bits = value->find("num_bits");
  const Json* type = value->find("type");
  const Json* dynamic = value->find("dynamic");
  if (bits == nullptr || *bits != Json(8) || type == nullptr || (*type != Json("float") && *type != Json("int")))
    return fields.unsupported(key, accepted);
  const bool scales = dynamic == nullptr || *dynamic != Json(true);
  return Found({*type == Json("float") ? "fp8" : "int8", scales});
}

Result<WeightFormats> WeightFormats::read(const Json& config, const Json* beside, const std::string& file) {
  WeightFormats formats;
  formats.file_ = file;
  const std::optional<Section> section = find_section(Fields(config, file));
  const Section* found = section ? &*section : nullptr;
  if (beside != nullptr) {
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    formats.rules_ = std::make_shared<const FormatRules>(TRY(read_beside(found, *beside, folder)));
  } else if (found != nullptr) {
    formats.rules_ = std::make_shared<const FormatRules>(TRY(read_section(*found, nullptr)));
  }
  return formats;
}

WeightFormats WeightFormats::quantised_at_start(StartFormat format) const {
  WeightFormats formats = *this;
  formats.at_start_ = format;
  return formats;
}

bool WeightFormats::any() const { return at_start_ || (rules_ != nullptr && !rules_->groups.empty()); }

std::string WeightFormats::method() const {
  return rules_ == nullptr || rules_->groups.empty() ? std::string() : rules_->method;
}

std::optional<StartFormat> WeightFormats::kind() const {
  std::optional<StartFormat> kind;
  if (rules_ == nullptr) return kind;
  for (const FormatGroup& group : rules_->groups) {
    const std::optional<StartFormat> of_group = kind_of(group.format);
    if (!of_group || (kind && kind != of_group)) return std::nullopt;
    kind = of_group;
  }
  return kind;
}

std::optional<KvCacheFormat> WeightFormats::kv_cache() const {
  return rules_ == nullptr ? std::nullopt : rules_->kv_cache;
}

Result<WeightFormat> WeightFormats::of(std::string_view module, const StoredTypeOf& stored) const {
  static const FormatRules kNone;
  const FormatRules& rules = rules_ == nullptr ? kNone : *rules_;
  const WeightFormat* described = nullptr;
  // A group that names the module takes precedence over a group of all linears.
  for (const FormatGroup& group : rules.groups) {
    if (described == nullptr && TRY(group.modules.matches(module).with_context(file_))) described = &group.format;
  }
  for (const FormatGroup& group : rules.groups) {
    if (described == nullptr && group.every_linear) described = &group.format;
  }
  const bool unquantised = described == nullptr || TRY(rules.unquantised.matches(module).with_context(file_));
  const WeightFormat settled = unquantised ? WeightFormat() : *described;
  if (!stored) return settled;
  return stored_format(rules, described, settled, module, stored, file_);
}

}  // namespace tessera
