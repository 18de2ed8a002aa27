#include "tessera/engine/schema/keywords.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace tessera::schema {
namespace {

constexpr std::array<std::string_view, 43> kConstraints = {"$ref",
                                                           "$dynamicRef",
                                                           "$recursiveRef",
                                                           "type",
                                                           "enum",
                                                           "const",
                                                           "allOf",
                                                           "anyOf",
                                                           "oneOf",
                                                           "not",
                                                           "if",
                                                           "then",
                                                           "else",
                                                           "properties",
                                                           "patternProperties",
                                                           "additionalProperties",
                                                           "unevaluatedProperties",
                                                           "propertyNames",
                                                           "required",
                                                           "minProperties",
                                                           "maxProperties",
                                                           "dependentRequired",
                                                           "dependentSchemas",
                                                           "dependencies",
                                                           "items",
                                                           "prefixItems",
                                                           "additionalItems",
                                                           "unevaluatedItems",
                                                           "contains",
                                                           "minContains",
                                                           "maxContains",
                                                           "minItems",
                                                           "maxItems",
                                                           "uniqueItems",
                                                           "minLength",
                                                           "maxLength",
                                                           "pattern",
                                                           "format",
                                                           "minimum",
                                                           "maximum",
                                                           "exclusiveMinimum",
                                                           "exclusiveMaximum",
                                                           "multipleOf"};

bool is_constraint(std::string_view key) { return std::ranges::find(kConstraints, key) != kConstraints.end(); }

}  // namespace

const Json* lone_reference(const Json& schema, bool alone) {
  const Json* reference = schema.find("$ref");
  if (reference == nullptr || alone) return reference;
  const bool lone = std::ranges::none_of(schema.as_object(), [](const Json::Member& member) {
    return member.first != "$ref" && is_constraint(member.first);
  });
  return lone ? reference : nullptr;
}

bool says_nothing(const Json& schema) {
  if (!schema.is_object()) return schema == Json(true);
  return std::ranges::none_of(schema.as_object(),
                              [](const Json::Member& member) { return is_constraint(member.first); });
}

}  // namespace tessera::schema
