// Reads the settings of Quark, AMD's exporter. They give one format for all linears. Only MXFP4 is supported.
#include <algorithm>

#include "tessera/model/formats/format_rules.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {
namespace {

// Reads a member that must be an object.
Result<Fields> required_object(const Fields& fields, const char* key) {
  const Json* value = fields.find(key);
  if (value == nullptr || !value->is_object()) return fields.wrong(key, "an object");
  return fields.inside(key, *value);
}

// Returns an error if the member is present and not empty.
Status refuse_more(const Fields& fields, const char* key) {
  const Json* value = fields.find(key);
  const bool empty = value == nullptr || (value->is_object() && value->as_object().empty()) ||
                     (value->is_array() && value->as_array().empty());
  return empty ? ok_status() : fields.unsupported(key, "null, {}, []");
}

Status expect_word(const Fields& fields, const char* key, std::string_view accepted) {
  const std::optional<std::string> word = TRY(fields.optional_string(key));
  return word == accepted ? ok_status() : fields.unsupported(key, std::string(accepted));
}

// Reads the member "weight" of "global_quant_config".
Status read_quark_weights(const Fields& weight) {
  TRY(expect_word(weight, "dtype", "fp4"));
  TRY(expect_word(weight, "qscheme", "per_group"));
  TRY(expect_word(weight, "scale_format", "e8m0"));
  const std::optional<std::int64_t> size = TRY(weight.optional_int("group_size", 1, 1 << 16));
  if (size != kMxfp4Block) return weight.unsupported("group_size", std::to_string(kMxfp4Block));
  const std::int64_t axis = TRY(weight.optional_int("ch_axis", -1, 1)).value_or(-1);
  if (axis == 0) return weight.unsupported("ch_axis", "-1, 1");
  if (TRY(weight.optional_bool("is_dynamic")).value_or(false)) return weight.unsupported("is_dynamic", "false");
  return ok_status();
}

}  // namespace

Result<FormatRules> read_quark(const Fields& fields) {
  const Fields global = TRY(required_object(fields, "global_quant_config"));
  TRY(read_quark_weights(TRY(required_object(global, "weight"))));
  // "input_tensors" is ignored. It may ask for inputs rounded to 4 bits, but this engine does not round them.
  for (const char* key : {"output_tensors", "bias"}) TRY(refuse_more(global, key));
  for (const char* key : {"layer_quant_config", "layer_type_quant_config", "algo_config", "kv_cache_quant_config"})
    TRY(refuse_more(fields, key));
  FormatRules rules{.method = "quark", .groups = {{.every_linear = true}}};
  rules.groups[0].format = {.values = WeightFormat::Values::kE2M1,
                            .spelling = WeightFormat::Spelling::kMxfp4,
                            .block_rows = 1,
                            .block_cols = kMxfp4Block};
  TRY(rules.unquantised.add("lm_head"));
  TRY(read_modules(fields, "exclude", rules.unquantised));
  return rules;
}

}  // namespace tessera
