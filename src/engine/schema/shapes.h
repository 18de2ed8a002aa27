// Defines the result of reading a schema. A type is a set of JSON values: a union of shapes, each with values of one
// kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/engine/schema/number_set.h"
#include "tessera/engine/schema/text_set.h"

namespace tessera::schema {

using TypeId = std::int32_t;  // index in a TypeTable

struct ArrayShape {
  std::vector<TypeId> prefix{};  // types of the first items
  TypeId rest = 0;               // type of all other items
  bool implied = true;           // `rest` is not from the schema, which does not mention other items
  std::int64_t min = 0;
  std::int64_t max = -1;  // -1: unbounded
  bool unique = false;

  TypeId item(std::size_t index) const { return index < prefix.size() ? prefix[index] : rest; }
  // Returns whether only the items of `prefix` are generated. JSON Schema also allows items that a schema does not
  // mention. We generate them only if the schema lists no item, or if it asks for more items than it lists.
  bool closed() const { return implied && !prefix.empty() && min <= static_cast<std::int64_t>(prefix.size()); }
};

struct Member {
  std::string name{};
  TypeId value = 0;
  bool required = false;
};

// Properties that the schema describes by a set of names and not one by one. The name classes of a shape do not
// overlap, but may contain the names of the shape's members.
struct NameClass {
  TextSet names{};
  TypeId value = 0;
  bool implied = false;  // the schema does not mention these properties
};

struct ObjectShape {
  std::vector<Member> members{};  // in the order in which they are written
  std::vector<NameClass> classes{};
  bool names_something = false;
  std::int64_t min = 0;
  std::int64_t max = -1;

  const Member* find(std::string_view name) const;
  bool closed() const { return names_something && min <= static_cast<std::int64_t>(members.size()); }
};

// A type whose values the shape must not have. It comes from a "not", or from another alternative of a "oneOf".
struct LeftOut {
  TypeId type = 0;
  const Json* at = nullptr;
  std::string_view keyword{};
};

struct Shape {
  // The shape's values. If this is a Json, it is the shape's only value.
  std::variant<Json, NumberSet, TextSet, ArrayShape, ObjectShape> values;
  std::vector<LeftOut> left_out{};

  template <class T>
  const T* get() const {
    return std::get_if<T>(&values);
  }
  template <class T>
  T* get() {
    return std::get_if<T>(&values);
  }
};

using Shapes = std::vector<Shape>;

// Compares values by the rules of JSON Schema: 1 equals 1.0, true does not equal 1, and the order of properties has no
// meaning.
bool equal_values(const Json& a, const Json& b);

}  // namespace tessera::schema
