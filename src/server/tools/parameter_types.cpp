#include "tessera/server/tools/parameter_types.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/server/tools/call_text.h"
#include "tessera/server/tools/python_literal.h"

namespace tessera {
namespace {

constexpr int kMaxDepth = 16;  // maximum nesting of schemas and references

using Types = ParameterTypes;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

Types type_of_name(std::string_view given) {
  constexpr std::pair<std::string_view, Types::Type> kBeginnings[] = {
      {"int", Types::kInteger},   {"uint", Types::kInteger},    {"long", Types::kInteger},  {"short", Types::kInteger},
      {"num", Types::kNumber},    {"float", Types::kNumber},    {"double", Types::kNumber}, {"bool", Types::kBoolean},
      {"object", Types::kObject}, {"dict", Types::kObject},     {"arr", Types::kArray},     {"list", Types::kArray},
      {"null", Types::kNull},     {"unsigned", Types::kInteger}};
  const std::string name = lower(given);
  for (const auto& [beginning, type] : kBeginnings) {
    if (name.starts_with(beginning)) return Types(type);
  }
  return Types(Types::kString);
}

Types type_of_value(const Json& value) { return type_of_name(value.type_name()); }

// Resolves a reference such as "#/$defs/city"; returns null if it leads nowhere.
const Json* resolve(const Json& root, std::string_view reference) {
  if (!reference.starts_with("#/")) return nullptr;
  const Json* at = &root;
  for (reference.remove_prefix(2); at != nullptr && !reference.empty();) {
    const std::string_view key = reference.substr(0, reference.find('/'));
    at = at->find(key);
    reference.remove_prefix(std::min(reference.size(), key.size() + 1));
  }
  return at;
}

Types types_of(const Json& schema, const Json& root, int depth) {
  Types types;
  if (depth > kMaxDepth) return types;
  if (const Json* type = schema.find("type"); type != nullptr) {
    if (type->is_string()) return type_of_name(type->as_string());
    if (!type->is_array()) return types;
    for (const Json& name : type->as_array()) {
      if (name.is_string()) types.add(type_of_name(name.as_string()));
    }
    return types;
  }
  if (const Json* reference = schema.find("$ref"); reference != nullptr && reference->is_string()) {
    const Json* target = resolve(root, reference->as_string());
    return target == nullptr ? types : types_of(*target, root, depth + 1);
  }
  for (const std::string_view key : {"anyOf", "oneOf", "allOf"}) {
    const Json* schemas = schema.find(key);
    if (schemas == nullptr || !schemas->is_array()) continue;
    for (const Json& inner : schemas->as_array()) types.add(types_of(inner, root, depth + 1));
  }
  if (const Json* values = schema.find("enum"); values != nullptr && values->is_array()) {
    for (const Json& value : values->as_array()) types.add(type_of_value(value));
  }
  if (const Json* value = schema.find("const"); value != nullptr) types.add(type_of_value(*value));
  if (schema.find("properties") != nullptr) types.add(Types(Types::kObject));
  if (schema.find("items") != nullptr) types.add(Types(Types::kArray));
  return types;
}

const Json* properties_of(const Json* schema) {
  const Json* properties = schema == nullptr ? nullptr : schema->find("properties");
  return properties != nullptr && properties->is_object() ? properties : nullptr;
}

std::size_t count_digits(std::string_view text) {
  const auto end = std::find_if_not(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  return static_cast<std::size_t>(end - text.begin());
}

// Returns whether `text` is a JSON number, of any size.
bool is_number(std::string_view text, bool integer) {
  if (text.starts_with('-')) text.remove_prefix(1);
  const std::size_t digits = count_digits(text);
  if (digits == 0 || (digits > 1 && text[0] == '0')) return false;
  text.remove_prefix(digits);
  if (text.empty() || integer) return text.empty();
  if (text[0] == '.') {
    const std::size_t fraction = count_digits(text.substr(1));
    if (fraction == 0) return false;
    text.remove_prefix(fraction + 1);
  }
  if (text.empty()) return true;
  if (text[0] != 'e' && text[0] != 'E') return false;
  text.remove_prefix(1);
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) text.remove_prefix(1);
  return !text.empty() && count_digits(text) == text.size();
}

// Returns the JSON text of an object or a list; nothing if `text` is neither.
std::optional<std::string> read_collection(std::string_view text) {
  const bool may_be_json = text.starts_with('{') || text.starts_with('[');
  if (may_be_json && Json::parse(text, "the value").ok()) return std::string(text);
  return python_literal_as_json(text);
}

}  // namespace

ParameterTypes parameter_types(const Json* schema, std::string_view name) {
  const Json* properties = properties_of(schema);
  const Json* parameter = properties == nullptr ? nullptr : properties->find(name);
  return parameter == nullptr ? Types() : types_of(*parameter, *schema, 0);
}

bool may_have_parameter(const Json* schema, std::string_view name) {
  const Json* properties = properties_of(schema);
  return properties == nullptr || properties->as_object().empty() || properties->find(name) != nullptr;
}

std::string value_as_json(std::string_view text, ParameterTypes types) {
  const std::string_view bare = without_spaces_around(text);
  std::string word = bare.size() <= 5 ? lower(bare) : std::string();
  if (!types.is_string()) {
    const bool nothing = word == "null" || word == "none";
    if (nothing && (types.has(Types::kNull) || !types.has(Types::kString))) return "null";
    if (types.has(Types::kInteger) && is_number(bare, /*integer=*/true)) return std::string(bare);
    if (types.has(Types::kNumber) && is_number(bare, /*integer=*/false)) return std::string(bare);
    if (types.has(Types::kBoolean) && (word == "true" || word == "false")) return word;
    if (types.has(Types::kArray) || types.has(Types::kObject)) {
      if (std::optional<std::string> read = read_collection(bare)) return *std::move(read);
    }
  }
  std::string out = "\"";
  append_escaped(out, text);
  return out + '"';
}

void append_escaped(std::string& out, std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      out += c;
    }
  }
}

}  // namespace tessera
