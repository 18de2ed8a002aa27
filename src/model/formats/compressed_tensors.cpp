// Reads the settings of compressed-tensors: groups of linears, each with its own scheme.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tessera/model/formats/format_rules.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {
namespace {

using Values = WeightFormat::Values;
using Spelling = WeightFormat::Spelling;
using Inputs = WeightFormat::Inputs;

constexpr std::int64_t kMaxGroup = 1 << 16;
constexpr std::int64_t kNvfp4Group = 16;

struct Scheme {
  std::string_view type;
  std::int64_t bits;
  std::string_view strategy;  // empty if every strategy that read_strategy() accepts is allowed
  Values values;
  Spelling spelling;
  std::string_view formats[2];  // accepted values of "format"; the second may be empty
};
constexpr Scheme kSchemes[] = {
    {"float", 8, "", Values::kE4M3, Spelling::kScaled, {"float-quantized", "naive-quantized"}},
    {"int", 8, "", Values::kInt8, Spelling::kScaled, {"int-quantized", "naive-quantized"}},
    {"int", 4, "", Values::kInt4, Spelling::kPacked, {"pack-quantized", ""}},
    {"float", 4, "tensor_group", Values::kE2M1, Spelling::kNvfp4Packed, {"nvfp4-pack-quantized", ""}},
    {"float", 4, "group", Values::kE2M1, Spelling::kMxfp4Packed, {"mxfp4-pack-quantized", ""}},
};
constexpr std::string_view kMixed = "mixed-precision";  // the "format" of a checkpoint that uses several formats

// Reads "strategy", which says which values share a scale.
Result<std::string> strategy_of(const Fields& weights) {
  const bool grouped = weights.find("group_size") != nullptr;
  return TRY(weights.optional_string("strategy")).value_or(grouped ? "group" : "tensor");
}

// Reads "weights" and returns its scheme. The type and the number of bits determine the scheme, except for 4-bit
// floats, where the strategy decides between two schemes.
Result<const Scheme*> read_scheme(const Fields& weights) {
  const std::string type = TRY(weights.optional_string("type")).value_or("int");
  const std::optional<std::int64_t> bits = TRY(weights.optional_int("num_bits", 1, 64));
  if (type != "int" && type != "float") return weights.unsupported("type", "int, float");
  const std::string strategy = TRY(strategy_of(weights));
  bool known = false;
  for (const Scheme& scheme : kSchemes) {
    if (scheme.type != type || scheme.bits != bits) continue;
    if (scheme.strategy.empty() || scheme.strategy == strategy) return &scheme;
    known = true;
  }
  if (known) return weights.unsupported("strategy", "tensor_group, group, for 4 bits of float");
  return weights.unsupported("num_bits", "4, 8");
}

// Checks that the group's "format" fits the scheme. If the group has none, checks the "format" of the whole file.
Status check_format(const Fields& all, const Fields& group, const Scheme& scheme) {
  const Fields& where = group.find("format") != nullptr ? group : all;
  const std::optional<std::string> format = TRY(where.optional_string("format"));
  if (!format || (&where == &all && *format == kMixed)) return ok_status();
  if (std::ranges::find(scheme.formats, *format) != std::end(scheme.formats) && !format->empty()) return ok_status();
  std::string accepted(scheme.formats[0]);
  if (!scheme.formats[1].empty()) accepted += fmt::format(", {}", scheme.formats[1]);
  if (&where == &all) accepted += fmt::format(", {}", kMixed);
  return where.unsupported("format", fmt::format("{} for {} bits of {}", accepted, scheme.bits, scheme.type));
}

// Reads "block_structure": [128, 128] or, in older files, "128x128".
Status read_block_structure(const Fields& weights, WeightFormat& format) {
  const Json* value = weights.find("block_structure");
  std::int64_t rows = 0, cols = 0;
  if (value != nullptr && value->is_array() && value->as_array().size() == 2 && value->as_array()[0].is_int() &&
      value->as_array()[1].is_int()) {
    rows = value->as_array()[0].as_int();
    cols = value->as_array()[1].as_int();
  } else if (value != nullptr && value->is_string() && value->as_string() == "128x128") {
    rows = cols = 128;
  }
  if (rows < 1 || cols < 1 || rows > kMaxGroup || cols > kMaxGroup)
    return weights.wrong("block_structure", "a list of rows and columns, as [128, 128]");
  format.block_rows = rows;
  format.block_cols = cols;
  return ok_status();
}

// Sets in `format` which values share a scale.
Status read_strategy(const Fields& weights, WeightFormat& format) {
  const std::string strategy = TRY(strategy_of(weights));
  if (format.values == Values::kE2M1) {
    const std::int64_t group = format.is_mxfp4() ? kMxfp4Block : kNvfp4Group;
    const std::optional<std::int64_t> size = TRY(weights.optional_int("group_size", 1, kMaxGroup));
    if (size != group) return weights.unsupported("group_size", fmt::format("{}, for {} of float", group, strategy));
    format.block_rows = 1;
    format.block_cols = group;
    return ok_status();
  }
  if (strategy == "channel") {
    format.block_rows = 1;
    return ok_status();
  }
  const bool int4 = format.values == Values::kInt4;
  if (strategy == "group") {
    format.block_rows = 1;
    format.block_cols =
        int4 ? TRY(read_int4_group(weights, "group_size")) : TRY(weights.required_int("group_size", 1, kMaxGroup));
    return ok_status();
  }
  if (!int4 && strategy == "tensor") return ok_status();
  if (!int4 && strategy == "block") return read_block_structure(weights, format);
  return weights.unsupported("strategy", int4 ? "channel, group" : "tensor, channel, group, block");
}

// Reads "actorder". Returns true if the columns are permuted, so that a group's columns are not consecutive.
Result<bool> read_order(const Fields& weights) {
  const Json* value = weights.find("actorder");
  if (value == nullptr) return false;
  if (value->is_bool()) return value->as_bool();
  const std::string order = value->is_string() ? value->as_string() : "";
  if (order == "group" || order == "dynamic") return true;
  if (order == "weight" || order == "static") return false;
  return weights.unsupported("actorder", "null, true, false, group, dynamic, weight, static");
}

Result<WeightFormat> read_weights(const Fields& all, const Fields& group, const Fields& weights) {
  const Scheme& scheme = *TRY(read_scheme(weights));
  TRY(check_format(all, group, scheme));
  WeightFormat format{.values = scheme.values, .spelling = scheme.spelling};
  if (scheme.spelling == Spelling::kScaled) format.scale = "weight_scale";
  TRY(read_strategy(weights, format));
  const bool symmetric = TRY(weights.optional_bool("symmetric")).value_or(true);
  if (scheme.values == Values::kInt4) {
    format.zeros = !symmetric;
    format.ordered = TRY(read_order(weights));
  } else if (!symmetric) {
    return weights.unsupported("symmetric", fmt::format("true, for {} bits of {}", scheme.bits, scheme.type));
  }
  return format;
}

// Reads "input_activations", which says how inputs are quantised. This engine does not round inputs to 4 bits, so
// inputs of 4 bits count as not rounded.
Result<Inputs> read_inputs(const Fields& inputs) {
  const std::optional<std::int64_t> bits = TRY(inputs.optional_int("num_bits", 1, 64));
  if (bits == 4) return Inputs::kPlain;
  if (bits != 8) return inputs.unsupported("num_bits", "4, 8");
  if (!TRY(inputs.optional_bool("symmetric")).value_or(true)) return inputs.unsupported("symmetric", "true");
  const bool dynamic = TRY(inputs.optional_bool("dynamic")).value_or(false);
  const std::string strategy = TRY(inputs.optional_string("strategy")).value_or("tensor");
  if (!dynamic && strategy == "tensor") return Inputs::kTensor;
  // The dynamic strategy "tensor" would use one scale for all tokens of a step, so that a row would depend on its
  // neighbours. "tensor" is therefore read as "token", which gives each row its own scale.
  if (dynamic && (strategy == "token" || strategy == "tensor")) return Inputs::kToken;
  if (dynamic && strategy == "group") {
    const std::optional<std::int64_t> size = TRY(inputs.optional_int("group_size", 1, kMaxGroup));
    if (size != 128) return inputs.unsupported("group_size", "128");
    return Inputs::kGroup;
  }
  return inputs.unsupported("strategy", dynamic ? "tensor, token, group" : "tensor, or another one that is dynamic");
}

Status read_targets(const Fields& fields, FormatGroup& group) {
  const Json* targets = fields.find("targets");
  const std::string accepted = "a list of \"Linear\", module names and \"re:\" with a regular expression";
  if (targets == nullptr || !targets->is_array() || targets->as_array().empty())
    return fields.wrong("targets", accepted);
  for (const Json& target : targets->as_array()) {
    if (!target.is_string() || target.as_string().empty()) return fields.wrong("targets", accepted);
    const std::string& name = target.as_string();
    if (name == "Linear") {
      group.every_linear = true;
    } else if (std::isupper(static_cast<unsigned char>(name[0])) != 0 && name.find('.') == std::string::npos) {
      return fields.unsupported("targets", accepted + ", of the classes of modules only Linear");
    } else {
      TRY(add_pattern(fields, "targets", name, group.modules));
    }
  }
  return ok_status();
}

// Returns a member that must be an object; null if it is absent.
Result<const Json*> object_member(const Fields& fields, const char* key) {
  const Json* value = fields.find(key);
  if (value != nullptr && !value->is_object()) return fields.wrong(key, "an object");
  return value;
}

Result<FormatGroup> read_group(const Fields& all, const Fields& fields) {
  FormatGroup group;
  TRY(read_targets(fields, group));
  const Json* weights = TRY(object_member(fields, "weights"));
  if (weights == nullptr) return fields.wrong("weights", "an object");
  group.format = TRY(read_weights(all, fields, fields.inside("weights", *weights)));
  const Json* inputs = TRY(object_member(fields, "input_activations"));
  if (inputs != nullptr) group.format.inputs = TRY(read_inputs(fields.inside("input_activations", *inputs)));
  if (fields.find("output_activations") != nullptr) return fields.unsupported("output_activations", "null");
  return group;
}

// Refuses settings that change the weights by something other than quantisation, for example by sparsity.
Status refuse_other_changes(const Fields& fields) {
  const Json* sparsity = TRY(object_member(fields, "sparsity_config"));
  if (sparsity != nullptr) {
    const Fields of_sparsity = fields.inside("sparsity_config", *sparsity);
    const std::string format = TRY(of_sparsity.optional_string("format")).value_or("dense");
    if (format != "dense") return of_sparsity.unsupported("format", "dense");
  }
  const Json* transforms = TRY(object_member(fields, "transform_config"));
  const auto is_empty = [](const Json& value) {
    return value.is_null() || (value.is_object() && value.as_object().empty());
  };
  if (transforms != nullptr && !std::ranges::all_of(transforms->as_object(), is_empty, &Json::Member::second))
    return fields.unsupported("transform_config", "no transforms");
  return ok_status();
}

}  // namespace

Result<FormatRules> read_compressed_tensors(const Fields& fields) {
  FormatRules rules{.method = "compressed-tensors"};
  TRY(refuse_other_changes(fields));
  const Json* groups = TRY(object_member(fields, "config_groups"));
  if (groups == nullptr || groups->as_object().empty()) return fields.wrong("config_groups", "an object of groups");
  const Fields of_groups = fields.inside("config_groups", *groups);
  for (const auto& [name, group] : groups->as_object()) {
    if (!group.is_object()) return of_groups.wrong(name, "an object");
    rules.groups.push_back(TRY(read_group(fields, of_groups.inside(name, group))));
  }
  TRY(read_modules(fields, "ignore", rules.unquantised));
  rules.kv_cache = TRY(read_kv_cache(fields, "kv_cache_scheme"));
  return rules;
}

}  // namespace tessera
