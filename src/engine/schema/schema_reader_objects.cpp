#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "tessera/engine/schema/lookahead.h"
#include "tessera/engine/schema/schema_reader.h"

namespace tessera::schema {
namespace {

constexpr std::size_t kMaxPatterns = 32;
constexpr std::size_t kMaxNameClasses = 64;  // each pattern may double the number of classes

}  // namespace

Result<ObjectShape> SchemaReader::object() {
  ObjectShape out;
  out.min = TRY(count("minProperties", 0));
  out.max = TRY(count("maxProperties", -1));
  TRY(read_names(out));
  if (out.names_something || schema_.find("propertyNames") != nullptr) TRY(keep_names(out));
  return out;
}

// Returns the conditions (TextTerm) that a pattern and its lookaheads state. A text must satisfy all of them.
Result<std::vector<TextTerm>> SchemaReader::pattern_terms(std::string_view pattern, std::string_view key) {
  std::vector<TextTerm> out;
  for (const PatternPart& part : split_lookaheads(pattern)) {
    const Result<Regex> regex = table_.texts().pattern(part.pattern);
    if (!regex.ok()) return table_.error(regex.status().code(), schema_, key, regex.status().message());
    out.push_back({.regex = *regex, .negated = part.negated});
  }
  return out;
}

// Divides all property names into classes by the patterns that they match. The classes do not overlap.
Result<std::vector<SchemaReader::Matched>> SchemaReader::match_patterns(const Json* patterns) {
  std::vector<Matched> classes = {{}};
  if (patterns == nullptr) return classes;
  if (patterns->as_object().size() > kMaxPatterns) {
    return unheld("patternProperties", fmt::format("more than {} patterns", kMaxPatterns));
  }
  bool first = true;
  for (const auto& [pattern, schema] : patterns->as_object()) {
    if (!schema.is_object() && !schema.is_bool()) return malformed("patternProperties", "schemas by pattern");
    const std::vector<TextTerm> terms = TRY(pattern_terms(pattern, "patternProperties"));
    std::vector<Matched> split;
    for (const Matched& one : classes) {
      Matched rest = one;
      std::vector<Matched> parts;
      // Makes a part for each term: the names that satisfy all earlier terms, but not this term.
      for (const TextTerm& term : terms) {
        parts.push_back(rest);
        parts.back().names.terms.push_back(term);
        parts.back().names.terms.back().negated = !term.negated;
        rest.names.terms.push_back(term);
      }
      rest.schemas.push_back(&schema);
      parts.insert(parts.begin(), std::move(rest));
      for (Matched& part : parts) {
        // With one pattern, both parts have names, because some names match the pattern and some do not. With further
        // patterns, or with lookaheads, a part may have no names.
        const bool sure = first && terms.size() == 1;
        if (!sure && TRY(table_.texts().empty(part.names, Reading::kWide))) continue;
        split.push_back(std::move(part));
      }
    }
    first = false;
    classes = std::move(split);
    if (classes.size() > kMaxNameClasses)
      return unheld("patternProperties", fmt::format("its patterns overlap in more than {} ways", kMaxNameClasses));
  }
  return classes;
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
  std::vector<Matched> classes = TRY(match_patterns(patterns));
  std::vector<std::uint8_t> of_pattern;  // [class]: 1 if a pattern matches its names
  for (Matched& one : classes) {
    const bool matched = !one.schemas.empty();
    of_pattern.push_back(matched ? 1 : 0);
    const bool implied = !matched && additional == nullptr;
    if (!matched && !implied) one.schemas = {additional};
    const TypeId value = TRY(implied ? table_.any() : table_.type_of(one.schemas));
    out.classes.push_back({std::move(one.names), value, implied});
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
      // Also applies the patterns that match the name.
      const NameClass* found = patterns == nullptr ? nullptr : TRY(class_of(name));
      if (found != nullptr && of_pattern[static_cast<std::size_t>(found - out.classes.data())] != 0) {
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
      const TypeId value = found == nullptr ? TRY(table_.never()) : found->value;
      out.members.push_back({name, value, true});
    }
  }
  out.names_something = properties != nullptr || patterns != nullptr || !out.members.empty();
  return ok_status();
}

// Returns the strings of a shape, without the strings of the types in its `left_out`. Returns nothing if no strings are
// left.
Result<std::optional<TextSet>> SchemaReader::names_of(const Shape& shape) {
  const TextSet* texts = shape.get<TextSet>();
  const Json* value = shape.get<Json>();
  std::optional<TextSet> out;
  if (texts != nullptr) out = *texts;
  if (value != nullptr && value->is_string()) {
    out = TextSet{.terms = {{.regex = make_whole(make_text(value->as_string()))}}};
  }
  for (const LeftOut& other : shape.left_out) {
    if (value != nullptr && out && TRY(table_.admits(other.type, *value, Reading::kWide))) out.reset();
    if (value != nullptr) continue;
    if (out && !TRY(table_.leave_out(*out, other.type))) out.reset();
  }
  return out;
}

// Handles "propertyNames": removes the names that it does not allow.
Status SchemaReader::keep_names(ObjectShape& out) {
  const Json* schema = TRY(subschema("propertyNames"));
  if (schema == nullptr) return ok_status();
  std::vector<TextSet> allowed;
  const TypeId type = TRY(table_.type_of({schema}));
  for (const Shape& shape : *TRY(table_.shapes(type))) {
    if (std::optional<TextSet> set = TRY(names_of(shape))) allowed.push_back(*std::move(set));
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
