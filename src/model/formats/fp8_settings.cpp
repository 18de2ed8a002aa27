// Reads the two FP8 settings of transformers: "fp8" (DeepSeek, Qwen and others) and "fbgemm_fp8" (Llama).
#include "tessera/model/formats/format_rules.h"

namespace tessera {
namespace {

constexpr std::int64_t kMaxFp8Block = 1 << 16;

// Reads "weight_block_size", the numbers of rows and columns of a block with one scale. If it is absent, the whole
// tensor has one scale.
Status read_fp8_blocks(const Fields& fields, WeightFormat& format) {
  const Json* size = fields.find("weight_block_size");
  if (size == nullptr) return ok_status();
  const auto is_size = [](const Json& n) { return n.is_int() && n.as_int() > 0 && n.as_int() <= kMaxFp8Block; };
  if (!size->is_array() || size->as_array().size() != 2 || !is_size(size->as_array()[0]) ||
      !is_size(size->as_array()[1]))
    return fields.wrong("weight_block_size", "a list of rows and columns, as [128, 128]");
  format.block_rows = size->as_array()[0].as_int();
  format.block_cols = size->as_array()[1].as_int();
  format.scale = "weight_scale_inv";
  return ok_status();
}

Status read_fp8_inputs(const Fields& fields, WeightFormat& format) {
  const bool blocks = format.block_rows > 0;
  const std::string scheme = TRY(fields.optional_string("activation_scheme")).value_or("dynamic");
  if (scheme == "dynamic") {
    format.inputs = blocks ? WeightFormat::Inputs::kGroup : WeightFormat::Inputs::kToken;
  } else if (scheme == "static" && !blocks) {
    format.inputs = WeightFormat::Inputs::kTensor;
  } else {
    return fields.unsupported("activation_scheme", blocks ? "dynamic, for blocks" : "dynamic, static");
  }
  return ok_status();
}

}  // namespace

Result<FormatRules> read_fp8(const Fields& fields) {
  const std::string type = TRY(fields.optional_string("fmt")).value_or("e4m3");
  if (type != "e4m3" && type != "float8_e4m3fn") return fields.unsupported("fmt", "e4m3, float8_e4m3fn");
  FormatRules rules{.method = "fp8", .groups = {{.every_linear = true}}};
  WeightFormat& format = rules.groups[0].format;
  format = {.values = WeightFormat::Values::kE4M3, .scale = "weight_scale"};
  TRY(read_fp8_blocks(fields, format));
  TRY(read_fp8_inputs(fields, format));
  TRY(rules.unquantised.add("lm_head"));
  for (const char* key : {"modules_to_not_convert", "ignored_layers"})
    TRY(read_modules(fields, key, rules.unquantised));
  rules.kv_cache = TRY(read_kv_cache(fields, "kv_cache_scheme"));
  return rules;
}

Result<FormatRules> read_fbgemm_fp8(const Fields& fields) {
  // activation_scale_ub is an upper limit of a token's scale. The kernels apply no such limit, so the value is checked
  // but not used.
  TRY(fields.optional_number("activation_scale_ub", 0.0, 1e9));
  FormatRules rules{.method = "fbgemm_fp8", .groups = {{.every_linear = true}}};
  rules.groups[0].format = {.values = WeightFormat::Values::kE4M3,
                            .scale = "weight_scale",
                            .block_rows = 1,
                            .inputs = WeightFormat::Inputs::kToken};
  TRY(rules.unquantised.add("lm_head"));
  TRY(read_modules(fields, "modules_to_not_convert", rules.unquantised));
  return rules;
}

}  // namespace tessera
