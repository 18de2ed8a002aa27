#include "tessera/engine/schema/schema_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>
#include <utility>

namespace tessera::schema {
namespace {

constexpr std::array<std::string_view, 7> kTypes = {"null",   "boolean", "integer", "number",
                                                    "string", "array",   "object"};
constexpr std::array<std::string_view, 5> kUnheld = {"$dynamicRef", "$recursiveRef", "contains", "minContains",
                                                     "maxContains"};

// Larger counts have no effect, because other limits end a text earlier.
constexpr std::int64_t kMaxCount = 1'000'000'000;

// How many steps of WorkLimit are spent when one type is excluded from one shape. In this way, WorkLimit also bounds
// the memory of the resulting shapes.
constexpr std::size_t kLeftOutSteps = 50;

// Returns whether `value` may contain a rounded number: one that is written as an integer, but fits neither 64 bits nor
// a double without rounding.
bool is_rounded(const Json& value) {
  if (value.is_array()) return std::ranges::any_of(value.as_array(), is_rounded);
  if (value.is_object()) {
    return std::ranges::any_of(value.as_object(), [](const Json::Member& member) { return is_rounded(member.second); });
  }
  return value.is_number() && !value.is_int() && std::abs(value.as_double()) >= 0x1p63;
}

bool only_values(const Shapes& shapes) {
  return std::ranges::all_of(shapes,
                             [](const Shape& shape) { return shape.get<Json>() != nullptr && shape.left_out.empty(); });
}

// Returns whether `value` is among the shapes. Precondition: only_values(shapes).
bool has_value(const Shapes& shapes, const Json& value) {
  return std::ranges::any_of(shapes, [&](const Shape& shape) { return equal_values(*shape.get<Json>(), value); });
}

void leave_out(Shapes& shapes, TypeId type, const Json& at, std::string_view keyword) {
  for (Shape& shape : shapes) shape.left_out.push_back({type, &at, keyword});
}

}  // namespace

Status SchemaReader::malformed(std::string_view key, std::string_view accepted) const {
  return table_.error(StatusCode::kInvalidArgument, schema_, key,
                      fmt::format("it is {}; accepted: {}", schema_.find(key)->dump().substr(0, 80), accepted));
}

Status SchemaReader::unheld(std::string_view key, std::string_view reason) const {
  return table_.error(StatusCode::kUnimplemented, schema_, key, reason);
}

Result<const Json*> SchemaReader::find(std::string_view key, std::string_view type) const {
  const Json* value = schema_.find(key);
  if (value != nullptr && value->type_name() != type) return malformed(key, fmt::format("a JSON {}", type));
  return value;
}

Result<std::int64_t> SchemaReader::count(std::string_view key, std::int64_t otherwise) const {
  const Json* value = schema_.find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number() || value->as_double() < 0 || value->as_double() > 1e15 ||
      value->as_double() != static_cast<double>(static_cast<std::int64_t>(value->as_double()))) {
    return malformed(key, "an integer from 0 on");
  }
  const auto number = static_cast<std::int64_t>(value->as_double());
  if (number > kMaxCount && key.starts_with("min")) return unheld(key, fmt::format("it is above {}", kMaxCount));
  return std::min(number, kMaxCount);
}

Result<const Json*> SchemaReader::subschema(std::string_view key) const {
  const Json* value = schema_.find(key);
  if (value != nullptr && !value->is_object() && !value->is_bool()) return malformed(key, "a schema");
  return value;
}

Result<const Json*> SchemaReader::schema_list(std::string_view key) const {
  const Json* list = TRY(find(key, "array"));
  if (list == nullptr) return list;
  const bool good =
      std::ranges::all_of(list->as_array(), [](const Json& one) { return one.is_object() || one.is_bool(); });
  if (!good || list->as_array().empty()) return malformed(key, "a list of at least one schema");
  return list;
}

Result<std::vector<std::string>> SchemaReader::names(const Json& list, std::string_view key) const {
  std::vector<std::string> out;
  if (!list.is_array()) return malformed(key, "lists of names");
  for (const Json& name : list.as_array()) {
    if (!name.is_string()) return malformed(key, "lists of names");
    out.push_back(name.as_string());
  }
  return out;
}

bool SchemaReader::has_applicators() const {
  return std::ranges::any_of(std::array{"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"},
                             [&](const char* key) { return schema_.find(key) != nullptr; });
}

Result<Shapes> SchemaReader::read() {
  if (schema_ == Json(false)) return Shapes();
  if (schema_.is_bool()) return own_shapes();
  if (!schema_.is_object()) {
    return invalid_argument(
        fmt::format("it is {}; accepted: a schema, which is an object, true or false", schema_.dump().substr(0, 80)));
  }
  for (const std::string_view key : kUnheld) {
    if (schema_.find(key) != nullptr) return unheld(key, "it cannot be held to while a text is generated");
  }
  Shapes shapes = TRY(keep_values(TRY(own_shapes())));
  shapes = TRY(apply_dependencies(std::move(shapes)));
  shapes = TRY(apply_reference(std::move(shapes)));
  shapes = TRY(apply_alternatives(std::move(shapes)));
  shapes = TRY(apply_one_of(std::move(shapes)));
  return apply_negations(std::move(shapes));
}

Result<Shapes> SchemaReader::own_shapes() {
  std::vector<std::string> types;
  if (const Json* type = schema_.find("type"); type != nullptr) {
    if (type->is_string()) {
      types.push_back(type->as_string());
    } else {
      types = TRY(names(*type, "type"));
    }
    for (const std::string& one : types) {
      if (std::ranges::find(kTypes, one) == kTypes.end()) {
        return malformed("type", fmt::format("{}, or a list of these", fmt::join(kTypes, ", ")));
      }
    }
  } else {
    types.assign(kTypes.begin(), kTypes.end());
  }
  const auto has = [&](std::string_view type) { return std::ranges::find(types, type) != types.end(); };
  // Reads every keyword, so that a malformed one is found even if "type" excludes the values that it constrains.
  NumberSet number_set = TRY(numbers());
  number_set.integer = !has("number");
  TextSet text_set = TRY(texts());
  ArrayShape array_shape = TRY(array());
  ObjectShape object_shape = TRY(object());
  Shapes out;
  if (has("null")) out.push_back({.values = Json()});
  if (has("boolean")) out.push_back({.values = Json(true)});
  if (has("boolean")) out.push_back({.values = Json(false)});
  if ((has("integer") || has("number")) && !provably_empty(number_set))
    out.push_back({.values = std::move(number_set)});
  if (has("string") && (text_set.max < 0 || text_set.min <= text_set.max))
    out.push_back({.values = std::move(text_set)});
  if (has("array")) out.push_back({.values = std::move(array_shape)});
  if (has("object")) out.push_back({.values = std::move(object_shape)});
  return out;
}

// Handles "const" and "enum": keeps the values that the other keywords allow.
Result<Shapes> SchemaReader::keep_values(const Shapes& shapes) {
  Shapes out = shapes;
  const auto keep = [&](const Json::Array& values, std::string_view key) -> Status {
    Shapes wanted;
    std::unordered_set<std::string> known;
    for (const Json& value : values) {
      if (is_rounded(value)) return unheld(key, "integers beyond 64 bits are not generated exactly");
      if (known.insert(value.dump()).second) wanted.push_back({.values = value});
    }
    out = TRY(table_.product(wanted, out));
    return ok_status();
  };
  if (const Json* value = schema_.find("const")) TRY(keep({*value}, "const"));
  if (const Json* values = TRY(find("enum", "array"))) TRY(keep(values->as_array(), "enum"));
  return out;
}

Result<Shapes> SchemaReader::apply_reference(Shapes shapes) {
  if (TRY(find("$ref", "string")) != nullptr) {
    const Json* target = TRY(table_.target_of(schema_));
    if (table_.index_.reference_stands_alone(schema_)) return table_.read(*target);
    shapes = TRY(table_.product(shapes, TRY(table_.read(*target))));
  }
  return shapes;
}

Result<Shapes> SchemaReader::apply_alternatives(Shapes shapes) {
  if (const Json* all = TRY(schema_list("allOf"))) {
    for (const Json& one : all->as_array()) shapes = TRY(table_.product(shapes, TRY(table_.read(one))));
  }
  if (const Json* any = TRY(schema_list("anyOf"))) {
    Shapes alternatives;
    for (const Json& one : any->as_array()) {
      for (Shape& shape : TRY(table_.read(one))) alternatives.push_back(std::move(shape));
    }
    shapes = TRY(table_.product(shapes, alternatives));
  }
  return shapes;
}

Result<Shapes> SchemaReader::apply_one_of(Shapes shapes) {
  const Json* list = TRY(schema_list("oneOf"));
  if (list == nullptr) return shapes;
  WorkLimit& work = table_.texts().work();
  std::vector<Shapes> alternatives;
  std::vector<TypeId> types;
  for (const Json& one : list->as_array()) {
    alternatives.push_back(TRY(table_.read(one)));
    types.push_back(TRY(table_.type_of({&one})));
  }
  Shapes out;
  for (std::size_t i = 0; i < alternatives.size(); ++i) {
    Shapes one = alternatives[i];
    for (std::size_t j = 0; j < alternatives.size() && !one.empty(); ++j) {
      if (j == i) continue;
      if (only_values(one) && only_values(alternatives[j])) {
        TRY(work.spend(one.size() * alternatives[j].size()));
        std::erase_if(one, [&](const Shape& shape) { return has_value(alternatives[j], *shape.get<Json>()); });
      } else {
        TRY(work.spend(kLeftOutSteps * one.size()));
        leave_out(one, types[j], schema_, "oneOf");
      }
    }
    for (Shape& shape : one) out.push_back(std::move(shape));
  }
  return table_.product(shapes, out);
}

Result<Shapes> SchemaReader::apply_negations(Shapes shapes) {
  if (const Json* negated = TRY(subschema("not"))) leave_out(shapes, TRY(table_.type_of({negated})), schema_, "not");
  const Json* condition = TRY(subschema("if"));
  const Json* then = TRY(subschema("then"));
  const Json* otherwise = TRY(subschema("else"));
  if (condition == nullptr || (then == nullptr && otherwise == nullptr)) return shapes;
  Shapes yes = TRY(table_.product(shapes, TRY(table_.read(*condition))));
  if (then != nullptr) yes = TRY(table_.product(yes, TRY(table_.read(*then))));
  Shapes no = shapes;
  leave_out(no, TRY(table_.type_of({condition})), schema_, "if");
  if (otherwise != nullptr) no = TRY(table_.product(no, TRY(table_.read(*otherwise))));
  yes.insert(yes.end(), no.begin(), no.end());
  return yes;
}

// Returns the values that satisfy a dependency on the property `name`: all objects with this property that also have
// the `required` properties and satisfy `schema` (may be null), all objects without this property, and all values that
// are not objects.
Result<Shapes> SchemaReader::with_present(const std::string& name, const std::vector<std::string>& required,
                                          const Json* schema) {
  const TypeId any = TRY(table_.any());
  const TypeId never = TRY(table_.never());
  ObjectShape present{.classes = {{.value = any, .implied = true}}};
  present.members.push_back({name, any, true});
  std::unordered_set<std::string> known = {name};
  for (const std::string& other : required) {
    if (known.insert(other).second) present.members.push_back({other, any, true});
  }
  ObjectShape absent{.classes = {{.value = any, .implied = true}}};
  absent.members.push_back({name, never, false});
  Shapes with = {{.values = std::move(present)}};
  if (schema != nullptr) with = TRY(table_.product(with, TRY(table_.read(*schema))));
  Shapes out = {{.values = std::move(absent)}};
  out.insert(out.begin(), with.begin(), with.end());
  const Json everything(true);
  for (Shape& shape : TRY(SchemaReader(table_, everything).own_shapes())) {
    if (shape.get<ObjectShape>() == nullptr) out.push_back(std::move(shape));
  }
  return out;
}

Result<Shapes> SchemaReader::apply_dependencies(Shapes shapes) {
  for (const std::string_view key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const Json* all = TRY(find(key, "object"));
    if (all == nullptr) continue;
    for (const auto& [name, what] : all->as_object()) {
      const bool list = what.is_array() && key != "dependentSchemas";
      if (!list && (key == "dependentRequired" || (!what.is_object() && !what.is_bool()))) {
        return malformed(key, "lists of names, or schemas");
      }
      const std::vector<std::string> required = list ? TRY(names(what, key)) : std::vector<std::string>();
      shapes = TRY(table_.product(shapes, TRY(with_present(name, required, list ? nullptr : &what))));
    }
  }
  return shapes;
}

}  // namespace tessera::schema
