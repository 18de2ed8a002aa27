// Reads the types that a tool's schema gives to a parameter. Also converts a value into JSON of these types. Call
// formats in which models write values as text between tags need this conversion.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/base/json.h"

namespace tessera {

// A set of JSON types. An empty set means that the schema gives no type.
class ParameterTypes {
 public:
  enum Type : std::uint8_t {
    kNull = 1,
    kBoolean = 2,
    kInteger = 4,
    kNumber = 8,
    kString = 16,
    kArray = 32,
    kObject = 64,
  };

  constexpr explicit ParameterTypes(int types = 0) : types_(static_cast<std::uint8_t>(types)) {}

  bool has(Type type) const { return (types_ & type) != 0; }
  bool has_none() const { return types_ == 0; }
  // Returns whether every value counts as a string.
  bool is_string() const { return types_ == 0 || types_ == kString; }
  bool is_string_or_null() const { return types_ == (kString | kNull); }
  void add(ParameterTypes more) { types_ |= more.types_; }

 private:
  std::uint8_t types_;
};

// Returns the types of the parameter `name` in a function's schema; none if `schema` is null or does not name the
// parameter. Reads "type" (also names that JSON Schema does not have: "int", "float", "dict", "list"), "anyOf",
// "oneOf", "allOf", "enum", "const", "properties", "items" and references within the schema.
ParameterTypes parameter_types(const Json* schema, std::string_view name);
// Returns whether the schema has the parameter; true if the schema lists no parameters.
bool may_have_parameter(const Json* schema, std::string_view name);

// Returns the JSON text of a value: `text` itself if it is JSON of one of the types, else a string. Spaces around
// values that are not strings are dropped. "True", "None", lists and dicts may also be written as in Python. `text` may
// have any bytes.
std::string value_as_json(std::string_view text, ParameterTypes types);
// Appends `text` as a JSON string without its quotes.
void append_escaped(std::string& out, std::string_view text);

}  // namespace tessera
