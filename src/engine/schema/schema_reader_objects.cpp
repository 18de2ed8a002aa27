#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "tessera/engine/schema/schema_reader.h"

namespace tessera::schema {
namespace {

constexpr std::size_t kMaxPatterns = 32;
constexpr std::size_t kMaxNameClasses = 64;  // each pattern may double the number of classes

}  // namespace

Result<ObjectShape> SchemaReader::object() {
  ObjectShape out{.min = TRY(count("minProperties", 0)), .max = TRY(count("maxProperties", -1))};
  TRY(read_names(out));
  if (out.names_something || schema_.find("propertyNames") != nullptr) TRY(keep_names(out));
  return out;
}

Status SchemaReader::read_names(ObjectShape& out) {
  const Json* properties = TRY(find("properties", "object"));
  const Json* patterns = TRY(find("patternProperties", "object"));
  const Json* required = TRY(find("required", "array"));
  const Json* additional = TRY(subschema("additionalProperties"));
  if (const Json* unevaluated = TRY(subschema("unevaluatedProperties"));
      unevaluated != nullptr && additional == nullptr) {
    if (has_applicators()) return unheld("unevaluatedProperties", "it stands beside $ref, allOf, anyOf, oneOf or if");
    additional = unevaluated;
  }
  // A class of names, and the schemas of the patterns that match it.
  struct Matched {
    TextSet names;
    std::vector<const Json*> schemas;
  };
  std::vector<Matched> classes = {{}};
  if (patterns != nullptr && patterns->as_object().size() > kMaxPatterns) {
    return unheld("patternProperties", fmt::format("more than {} patterns", kMaxPatterns));
  }
  for (std::size_t p = 0; patterns != nullptr && p < patterns->as_object().size(); ++p) {
    const auto& [pattern, schema] = patterns->as_object()[p];
    if (!schema.is_object() && !schema.is_bool()) return malformed("patternProperties", "schemas by pattern");
    const Result<Regex> regex = table_.texts().pattern(pattern);
    if (!regex.ok()) return table_.error(regex.status().code(), schema_, "patternProperties", regex.status().message());
    std::vector<Matched> split;
    for (const Matched& one : classes) {
      for (const bool matches : {true, false}) {
        Matched part = one;
        part.names.terms.push_back({.regex = *regex, .negated = !matches});
        if (matches) part.schemas.push_back(&schema);
        // The first pattern always leaves both sides non-empty; later ones may not.
        if (p > 0 && TRY(table_.texts().empty(part.names, Reading::kWide))) continue;
        split.push_back(std::move(part));
      }
    }
    classes = std::move(split);
    if (classes.size() > kMaxNameClasses)
      return unheld("patternProperties", fmt::format("its patterns overlap in more than {} ways", kMaxNameClasses));
  }
  for (Matched& one : classes) {
    const bool matched = !one.schemas.empty();
    if (!matched && additional == nullptr) {
      out.classes.push_back({std::move(one.names), TRY(table_.any()), true});
    } else {
      if (!matched) one.schemas = {additional};
      out.classes.push_back({std::move(one.names), TRY(table_.type_of(one.schemas)), false});
    }
  }
  const auto class_of = [&](const std::string& name) -> Result<const NameClass*> {
    Result<const NameClass*> found = table_.class_of(out, name);
    if (found.ok()) return found;
    return table_.error(found.status().code(), schema_, "patternProperties", found.status().message());
  };
  if (properties != nullptr) {
    for (const auto& [name, schema] : properties->as_object()) {
      if (!schema.is_object() && !schema.is_bool()) return malformed("properties", "schemas by name");
      TypeId value = TRY(table_.type_of({&schema}));
      // Patterns that match the name apply too.
      const NameClass* found = patterns == nullptr ? nullptr : TRY(class_of(name));
      if (found != nullptr && std::ranges::any_of(found->names.terms, std::logical_not(), &TextTerm::negated)) {
        value = TRY(table_.join(value, found->value));
      }
      out.members.push_back({name, value, false});
    }
  }
  if (required != nullptr) {
    std::unordered_map<std::string, std::size_t> places;
    for (std::size_t i = 0; i < out.members.size(); ++i) places.emplace(out.members[i].name, i);
    for (const std::string& name : TRY(names(*required, "required"))) {
      const auto [known, added] = places.try_emplace(name, out.members.size());
      if (!added) {
        out.members[known->second].required = true;
        continue;
      }
      const NameClass* found = TRY(class_of(name));
      out.members.push_back({name, found == nullptr ? TRY(table_.never()) : found->value, true});
    }
  }
  out.names_something = properties != nullptr || patterns != nullptr || !out.members.empty();
  return ok_status();
}

// Handles "propertyNames": other names are not allowed.
Status SchemaReader::keep_names(ObjectShape& out) {
  const Json* schema = TRY(subschema("propertyNames"));
  if (schema == nullptr) return ok_status();
  std::vector<TextSet> allowed;
  const TypeId type = TRY(table_.type_of({schema}));
  for (const Shape& shape : *TRY(table_.shapes(type))) {
    if (!shape.left_out.empty())
      return unheld("propertyNames", "\"oneOf\", \"not\" and \"if\" are not supported in it");
    if (const TextSet* set = shape.get<TextSet>()) allowed.push_back(*set);
    const Json* value = shape.get<Json>();
    if (value != nullptr && value->is_string()) {
      allowed.push_back({.terms = {{.regex = make_whole(make_text(value->as_string()))}}});
    }
  }
  for (Member& member : out.members) {
    if (!TRY(table_.admits(type, Json(member.name), Reading::kNarrow))) member.value = TRY(table_.never());
  }
  std::vector<NameClass> classes;
  for (const NameClass& one : out.classes) {
    for (const TextSet& set : allowed) classes.push_back({schema::both(one.names, set), one.value, one.implied});
  }
  out.classes = std::move(classes);
  return ok_status();
}

}  // namespace tessera::schema
