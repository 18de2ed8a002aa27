// Reads the settings of GPTQ and AWQ. Both formats store eight 4-bit values in a 32-bit word, and have one scale for
// each group of columns.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/model/formats/format_rules.h"

namespace tessera {
namespace {

constexpr std::array kInt4Groups{std::int64_t{32}, std::int64_t{64}, std::int64_t{128}};

Status read_four_bits(const Fields& fields, std::string_view key) {
  const std::optional<std::int64_t> bits = TRY(fields.optional_int(key, 1, 64));
  if (bits != 4) return fields.unsupported(key, "4");
  return ok_status();
}

// Returns `other` if the file has the key `other` but not `key`. Returns `key` in all other cases.
std::string_view present(const Fields& fields, std::string_view key, std::string_view other) {
  return fields.find(key) == nullptr && fields.find(other) != nullptr ? other : key;
}

Status refuse_unless(const Fields& fields, const char* key, bool accepted) {
  const std::optional<bool> value = TRY(fields.optional_bool(key));
  if (value && *value != accepted) return fields.unsupported(key, accepted ? "true" : "false");
  return ok_status();
}

// Reads GPTQ's list of lists, which names the quantised modules of each layer. If it is absent, every linear of the
// layers is quantised.
Status read_gptq_modules(const Fields& fields, FormatGroup& group) {
  constexpr const char* kKey = "modules_in_block_to_quantize";
  const Json* lists = fields.find(kKey);
  group.every_linear = lists == nullptr;
  if (lists == nullptr) return ok_status();
  const auto is_list_of_names = [](const Json& list) {
    return list.is_array() && std::ranges::all_of(list.as_array(), &Json::is_string);
  };
  if (!lists->is_array() || !std::ranges::all_of(lists->as_array(), is_list_of_names))
    return fields.wrong(kKey, "a list of lists of module names");
  for (const Json& list : lists->as_array())
    for (const Json& name : list.as_array()) TRY(add_pattern(fields, kKey, name.as_string(), group.modules));
  return ok_status();
}

}  // namespace

Result<std::int64_t> read_int4_group(const Fields& fields, std::string_view key) {
  const Json* value = fields.find(key);
  if (value != nullptr && value->is_int()) {
    if (value->as_int() == -1) return 0;
    if (std::ranges::find(kInt4Groups, value->as_int()) != kInt4Groups.end()) return value->as_int();
  }
  return fields.unsupported(key, fmt::format("-1 (all columns), {}", fmt::join(kInt4Groups, ", ")));
}

Result<FormatRules> read_gptq(const Fields& fields) {
  FormatRules rules{.method = "gptq", .groups = {{}}};
  TRY(read_four_bits(fields, "bits"));
  const std::string_view form_key = present(fields, "checkpoint_format", "format");
  const std::string form = TRY(fields.optional_string(form_key)).value_or("gptq");
  if (form != "gptq" && form != "gptq_v2") return fields.unsupported(form_key, "gptq, gptq_v2");
  TRY(refuse_unless(fields, "is_marlin_format", false));
  const std::string word = TRY(fields.optional_string("pack_dtype")).value_or("int32");
  if (word != "int32") return fields.unsupported("pack_dtype", "int32");
  const Json* overrides = fields.find("dynamic");
  if (overrides != nullptr && !(overrides->is_object() && overrides->as_object().empty()) && *overrides != Json(false))
    return fields.unsupported("dynamic", "no settings for single modules");
  TRY(fields.optional_bool("sym"));  // the value does not matter, because zero points are stored in both cases
  const std::int64_t group = TRY(read_int4_group(fields, "group_size"));
  const bool ordered = TRY(fields.optional_bool("desc_act")).value_or(false);
  rules.groups[0].format = {.values = WeightFormat::Values::kInt4,
                            .spelling = WeightFormat::Spelling::kGptq,
                            .block_rows = 1,
                            .block_cols = group,
                            .zeros = true,
                            .zeros_less_one = form == "gptq",
                            .ordered = ordered};
  TRY(read_gptq_modules(fields, rules.groups[0]));
  TRY(read_modules(fields, "modules_to_not_convert", rules.unquantised));
  if (TRY(fields.optional_bool("lm_head")).value_or(false)) {
    TRY(rules.groups[0].modules.add("lm_head"));
  } else {
    TRY(rules.unquantised.add("lm_head"));
  }
  return rules;
}

Result<FormatRules> read_awq(const Fields& fields) {
  FormatRules rules{.method = "awq", .groups = {{.every_linear = true}}};
  TRY(read_four_bits(fields, present(fields, "bits", "w_bit")));
  const std::string version = TRY(fields.optional_string("version")).value_or("gemm");
  if (version != "gemm" && version != "GEMM") return fields.unsupported("version", "gemm");
  TRY(refuse_unless(fields, "zero_point", true));
  const std::int64_t group = TRY(read_int4_group(fields, present(fields, "group_size", "q_group_size")));
  rules.groups[0].format = {.values = WeightFormat::Values::kInt4,
                            .spelling = WeightFormat::Spelling::kAwq,
                            .block_rows = 1,
                            .block_cols = group,
                            .zeros = true};
  TRY(rules.unquantised.add("lm_head"));
  TRY(read_modules(fields, "modules_to_not_convert", rules.unquantised));
  return rules;
}

}  // namespace tessera
