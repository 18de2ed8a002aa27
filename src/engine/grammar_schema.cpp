#include "tessera/engine/grammar_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "tessera/base/json.h"
#include "tessera/engine/grammar.h"

namespace tessera {
namespace {

// xgrammar ignores these silently.
constexpr std::array<std::string_view, 9> kRefused = {
    "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "contains", "uniqueItems"};
// A schema, or an array of them.
constexpr std::array<std::string_view, 10> kSchemas = {"items",
                                                       "prefixItems",
                                                       "additionalItems",
                                                       "additionalProperties",
                                                       "unevaluatedItems",
                                                       "unevaluatedProperties",
                                                       "propertyNames",
                                                       "anyOf",
                                                       "oneOf",
                                                       "allOf"};
// Schemas by name.
constexpr std::array<std::string_view, 4> kNamedSchemas = {"properties", "patternProperties", "$defs", "definitions"};

bool is_one_of(std::string_view key, const auto& keys) { return std::ranges::find(keys, key) != keys.end(); }

// Precondition, here and below: check_depth() passed, so the recursion is shallow.
Status check_keywords(const Json& schema, const std::string& place);

Status check_named(const Json& schemas, const std::string& place) {
  if (!schemas.is_object()) return ok_status();
  for (const auto& [name, schema] : schemas.as_object()) TRY(check_keywords(schema, place + "/" + name));
  return ok_status();
}

// A property that is required and not described would be left out.
Status check_required(const Json& schema, const std::string& place) {
  const Json* required = schema.find("required");
  if (required == nullptr || !required->is_array()) return ok_status();
  const Json* properties = schema.find("properties");
  for (const Json& name : required->as_array()) {
    if (!name.is_string() || (properties != nullptr && properties->find(name.as_string()) != nullptr)) continue;
    return unimplemented(
        fmt::format("JSON schema {}: \"{}\" is required and not among the properties; accepted: required "
                    "properties that are described there",
                    place, name.as_string()));
  }
  return ok_status();
}

Status check_keywords(const Json& schema, const std::string& place) {
  if (schema.is_array()) {
    std::size_t index = 0;
    for (const Json& item : schema.as_array()) TRY(check_keywords(item, fmt::format("{}/{}", place, index++)));
  }
  if (!schema.is_object()) return ok_status();
  TRY(check_required(schema, place));
  for (const auto& [key, value] : schema.as_object()) {
    if (is_one_of(key, kRefused) && value != Json(false)) {
      return unimplemented(
          fmt::format("JSON schema {}: \"{}\" cannot be held to while a text is generated", place, key));
    }
    const std::string inner = place + "/" + key;
    if (is_one_of(key, kSchemas)) TRY(check_keywords(value, inner));
    if (is_one_of(key, kNamedSchemas)) TRY(check_named(value, inner));
  }
  return ok_status();
}

Status check_depth(const Json& value, int depth) {
  if (depth > kMaxGrammarDepth)
    return invalid_argument(fmt::format("JSON schema: nested deeper than {} levels", kMaxGrammarDepth));
  if (value.is_array()) {
    for (const Json& item : value.as_array()) TRY(check_depth(item, depth + 1));
  } else if (value.is_object()) {
    for (const auto& [key, member] : value.as_object()) TRY(check_depth(member, depth + 1));
  }
  return ok_status();
}

}  // namespace

Status check_json_schema(std::string_view schema) {
  const Json parsed = TRY(Json::parse(schema, "JSON schema"));
  if (!parsed.is_object() && !parsed.is_bool()) {
    return invalid_argument(
        fmt::format("JSON schema: it is {}; an object or true is accepted", std::string(parsed.type_name())));
  }
  TRY(check_depth(parsed, 0));
  return check_keywords(parsed, "#");
}

}  // namespace tessera
