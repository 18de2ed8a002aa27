#include <fmt/format.h>

#include <utility>

#include "tessera/engine/schema/formats.h"
#include "tessera/engine/schema/schema_reader.h"

namespace tessera::schema {
// Reads a bound. In draft 4, the value of `exclusive_key` says whether the bound of `key` is exclusive. In later
// drafts, `exclusive_key` has a bound of its own, which is always exclusive.
Result<std::optional<NumberSet::Bound>> SchemaReader::bound(std::string_view key, std::string_view exclusive_key,
                                                            int sign) {
  std::optional<NumberSet::Bound> out;
  const Json* value = schema_.find(key);
  const Json* exclusive = schema_.find(exclusive_key);
  if (value != nullptr) {
    if (!value->is_number()) return malformed(key, "a number");
    out = {value_of(*value), exclusive != nullptr && *exclusive == Json(true)};
  }
  if (exclusive == nullptr || exclusive->is_bool()) return out;
  if (!exclusive->is_number()) return malformed(exclusive_key, "a number");
  const long double limit = value_of(*exclusive);
  if (!out || (sign > 0 ? limit >= out->value : limit <= out->value)) out = {limit, true};
  return out;
}

Result<NumberSet> SchemaReader::numbers() {
  NumberSet out;
  out.low = TRY(bound("minimum", "exclusiveMinimum", 1));
  out.high = TRY(bound("maximum", "exclusiveMaximum", -1));
  if (const Json* step = schema_.find("multipleOf")) {
    if (!step->is_number() || step->as_double() <= 0) return malformed("multipleOf", "a number above 0");
    const std::optional<Decimal> value = decimal_of(value_of(*step));
    if (!value || !is_step(*value)) return unheld("multipleOf", "it has more than 15 digits or decimal places");
    out.multiples.push_back(*value);
  }
  return out;
}

Result<TextSet> SchemaReader::texts() {
  TextSet out;
  out.min = TRY(count("minLength", 0));
  out.max = TRY(count("maxLength", -1));
  if (const Json* pattern = TRY(find("pattern", "string"))) {
    out.terms = TRY(pattern_terms(pattern->as_string(), "pattern"));
  }
  if (const Json* format = TRY(find("format", "string"))) {
    const Result<std::optional<TextTerm>> term = format_term(format->as_string());
    if (!term.ok()) return table_.error(term.status().code(), schema_, "format", term.status().message());
    if (*term) out.terms.push_back(**term);
  }
  return out;
}

Result<ArrayShape> SchemaReader::array() {
  ArrayShape out;
  out.rest = TRY(table_.any());
  out.min = TRY(count("minItems", 0));
  out.max = TRY(count("maxItems", -1));
  const Json* items = schema_.find("items");
  const bool old_list = items != nullptr && items->is_array();
  const std::string_view prefix_key = old_list ? "items" : "prefixItems";
  if (const Json* prefix = schema_.find(prefix_key)) {
    if (!prefix->is_array()) return malformed(prefix_key, "a list of schemas");
    if (!prefix->as_array().empty()) TRY(schema_list(prefix_key));
    for (const Json& one : prefix->as_array()) out.prefix.push_back(TRY(table_.type_of({&one})));
  }
  const Json* rest = old_list ? TRY(subschema("additionalItems")) : TRY(subschema("items"));
  if (const Json* unevaluated = TRY(subschema("unevaluatedItems")); unevaluated != nullptr && rest == nullptr) {
    if (has_applicators()) return unheld("unevaluatedItems", "it stands beside $ref, allOf, anyOf, oneOf or if");
    rest = unevaluated;
  }
  if (rest != nullptr) {
    out.rest = TRY(table_.type_of({rest}));
    out.implied = false;
  }
  if (const Json* unique = TRY(find("uniqueItems", "boolean"))) out.unique = unique->as_bool();
  return out;
}

}  // namespace tessera::schema
