#include "tessera/engine/schema/type_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/engine/schema/keywords.h"
#include "tessera/engine/schema/schema_reader.h"

namespace tessera::schema {
namespace {

constexpr std::size_t kMaxTypes = 20'000;
constexpr std::size_t kMaxShapes = 2048;  // maximum number of shapes of one type
constexpr std::size_t kMaxReading = 256;  // maximum nesting of schemas that are read inside one another
constexpr std::size_t kReadSteps = 2000;  // steps of WorkLimit that reading one schema costs

}  // namespace

const Member* ObjectShape::find(std::string_view name) const {
  const auto found = std::ranges::find(members, name, &Member::name);
  return found == members.end() ? nullptr : &*found;
}

Status TypeTable::error(StatusCode code, const Json& at, std::string_view keyword, std::string_view reason) const {
  return {code, fmt::format("{}: \"{}\": {}", index_.place(at), keyword, reason)};
}

Result<TypeId> TypeTable::type_of(const std::vector<const Json*>& schemas) {
  std::vector<const Json*> key;
  for (const Json* schema : schemas) {
    // A schema that is only a reference equals the schema that it names.
    const auto lone = [&] { return lone_reference(*schema, index_.reference_stands_alone(*schema)); };
    std::set<const Json*> seen;
    while (const Json* reference = lone()) {
      if (!reference->is_string()) break;  // read() reports the error
      if (!seen.insert(schema).second)
        return error(StatusCode::kInvalidArgument, *schema, "$ref", "it leads back to itself");
      schema = TRY(target_of(*schema));
    }
    if (says_nothing(*schema)) continue;
    numbers_.try_emplace(schema, numbers_.size());
    key.push_back(schema);
  }
  std::ranges::sort(key, {}, [&](const Json* schema) { return numbers_.at(schema); });
  key.erase(std::unique(key.begin(), key.end()), key.end());
  const auto [found, added] = ids_.try_emplace(key, static_cast<TypeId>(types_.size()));
  if (added) {
    if (types_.size() >= kMaxTypes) {
      return invalid_argument(fmt::format("its combinations come to more than {} schemas", kMaxTypes));
    }
    TRY(texts_.work().spend(100 * key.size()));
    types_.push_back(std::make_unique<Type>(Type{.schemas = std::move(key)}));
  }
  return found->second;
}

Result<const Json*> TypeTable::target_of(const Json& schema) {
  TRY(texts_.work().spend(10));
  const auto known = targets_.find(&schema);
  if (known != targets_.end()) return known->second;
  const Json* target = TRY(index_.resolve(schema, schema.find("$ref")->as_string()));
  targets_.emplace(&schema, target);
  return target;
}

Result<TypeId> TypeTable::complement(TypeId type, const LeftOut& why) {
  std::unique_ptr<Negation>& negation = negations_[type];
  if (negation == nullptr) {
    negation = std::make_unique<Negation>(Negation{Json(Json::array()), {type, why.at, why.keyword}});
    negation_of_.emplace(&negation->schema, negation.get());
  }
  return type_of({&negation->schema});
}

const Json& TypeTable::origin(const Type& type) const {
  const Json* first = type.schemas.front();
  const auto negation = negation_of_.find(first);
  return negation == negation_of_.end() ? *first : *negation->second->of.at;
}

Result<TypeId> TypeTable::join(TypeId a, TypeId b) {
  if (a == b) return a;
  std::vector<const Json*> schemas = types_[static_cast<std::size_t>(a)]->schemas;
  const std::vector<const Json*>& more = types_[static_cast<std::size_t>(b)]->schemas;
  schemas.insert(schemas.end(), more.begin(), more.end());
  return type_of(schemas);
}

Status TypeTable::placed(Status error, TypeId type) const {
  const std::vector<const Json*>& schemas = types_[static_cast<std::size_t>(type)]->schemas;
  if (error.ok() || schemas.empty() || error.message().starts_with('#')) return error;
  return std::move(error).with_context(index_.place(origin(*types_[static_cast<std::size_t>(type)])));
}

Result<const Shapes*> TypeTable::shapes(TypeId type) {
  Type& entry = *types_[static_cast<std::size_t>(type)];
  if (entry.expanded) return &entry.shapes;
  Result<Shapes> shapes = expand(entry);
  if (!shapes.ok()) return placed(std::move(shapes).status(), type);
  entry.shapes = *std::move(shapes);
  entry.expanded = true;
  return &entry.shapes;
}

Result<Shapes> TypeTable::expand(const Type& type) {
  static const Json anything(true);
  if (type.schemas.empty()) return read(anything);
  Shapes out = TRY(read(*type.schemas.front()));
  for (std::size_t i = 1; i < type.schemas.size(); ++i) out = TRY(product(out, TRY(read(*type.schemas[i]))));
  return out;
}

Result<Shapes> TypeTable::read(const Json& schema) {
  if (const auto known = read_.find(&schema); known != read_.end()) return known->second;
  if (const auto negation = negation_of_.find(&schema); negation != negation_of_.end()) {
    static const Json anything(true);
    Shapes out = TRY(read(anything));
    for (Shape& shape : out) shape.left_out.push_back(negation->second->of);
    return out;
  }
  if (!reading_.insert(&schema).second) {
    return error(StatusCode::kInvalidArgument, schema, "$ref", "it leads back to itself with no value in between");
  }
  if (reading_.size() > kMaxReading) {
    return invalid_argument(fmt::format("{}: it is reached through more than {} references and alternatives",
                                        index_.place(schema), kMaxReading));
  }
  TRY(texts_.work().spend(kReadSteps));
  Result<Shapes> shapes = SchemaReader(*this, schema).read();
  reading_.erase(&schema);
  if (shapes.ok()) read_.emplace(&schema, *shapes);
  return shapes;
}

Result<Shapes> TypeTable::product(const Shapes& a, const Shapes& b) {
  Shapes out;
  std::size_t sets = 0;  // number of shapes that are not single values; only these are limited
  for (const Shape& one : a) {
    for (const Shape& other : b) {
      TRY(texts_.work().spend(10));
      for (Shape& shape : TRY(both(one, other))) {
        if (shape.get<Json>() == nullptr) ++sets;
        out.push_back(std::move(shape));
      }
      if (sets > kMaxShapes) {
        return invalid_argument(fmt::format("its alternatives come to more than {} combinations", kMaxShapes));
      }
    }
  }
  return out;
}

Result<Shapes> TypeTable::both(const Shape& a, const Shape& b) {
  Shapes none;
  Shape out{.values = a.values, .left_out = a.left_out};
  out.left_out.insert(out.left_out.end(), b.left_out.begin(), b.left_out.end());
  const Json* value = a.get<Json>() != nullptr ? a.get<Json>() : b.get<Json>();
  if (value != nullptr) {
    const Shape other{.values = value == a.get<Json>() ? b.values : a.values};
    const bool certain = TRY(admits(other, *value, Reading::kNarrow));
    if (!certain && TRY(admits(other, *value, Reading::kWide))) {
      return unimplemented(fmt::format("validators disagree on whether {} matches a pattern or format", value->dump()));
    }
    if (!certain) return none;
    out.values = *value;
  } else if (a.values.index() != b.values.index()) {
    return none;
  } else if (NumberSet* numbers = out.get<NumberSet>()) {
    *numbers = schema::both(*numbers, *b.get<NumberSet>());
    if (provably_empty(*numbers)) return none;
  } else if (TextSet* texts = out.get<TextSet>()) {
    *texts = schema::both(*texts, *b.get<TextSet>());
  } else if (ArrayShape* array = out.get<ArrayShape>()) {
    *array = TRY(both_arrays(*a.get<ArrayShape>(), *b.get<ArrayShape>()));
    if (array->max >= 0 && array->max < array->min) return none;
  } else {
    out.values = TRY(both_objects(*a.get<ObjectShape>(), *b.get<ObjectShape>()));
  }
  none.push_back(std::move(out));
  return none;
}

Result<ArrayShape> TypeTable::both_arrays(const ArrayShape& a, const ArrayShape& b) {
  ArrayShape out{.rest = TRY(join(a.rest, b.rest)),
                 .implied = a.implied && b.implied,
                 .min = std::max(a.min, b.min),
                 .max = a.max < 0   ? b.max
                        : b.max < 0 ? a.max
                                    : std::min(a.max, b.max),
                 .unique = a.unique || b.unique};
  TRY(texts_.work().spend(20 * std::max(a.prefix.size(), b.prefix.size())));
  for (std::size_t i = 0; i < std::max(a.prefix.size(), b.prefix.size()); ++i) {
    out.prefix.push_back(TRY(join(a.item(i), b.item(i))));
  }
  return out;
}

Result<const NameClass*> TypeTable::class_of(const ObjectShape& shape, const std::string& name) {
  for (const NameClass& one : shape.classes) {
    if (TRY(texts_.contains(one.names, name, Reading::kNarrow))) return &one;
  }
  for (const NameClass& one : shape.classes) {
    if (TRY(texts_.contains(one.names, name, Reading::kWide))) {
      return unimplemented(
          fmt::format("dialects of regular expressions differ on whether \"{}\" matches a pattern", name));
    }
  }
  return nullptr;
}

Result<bool> TypeTable::leave_out(TextSet& texts, TypeId other) {
  std::vector<std::string> values;
  for (const Shape& shape : *TRY(shapes(other))) {
    const TextSet* others = shape.get<TextSet>();
    if (others != nullptr && others->free()) return false;
    if (others != nullptr) TRY(texts_.leave_out(texts, *others));
    const Json* value = shape.get<Json>();
    if (value != nullptr && value->is_string()) values.push_back(value->as_string());
  }
  if (!values.empty()) TRY(texts_.leave_out_texts(texts, std::move(values)));
  return true;
}

Result<TypeId> TypeTable::value_of(const ObjectShape& shape, const std::string& name) {
  const NameClass* found = TRY(class_of(shape, name));
  return found == nullptr ? never() : found->value;
}

Result<ObjectShape> TypeTable::both_objects(const ObjectShape& a, const ObjectShape& b) {
  TRY(texts_.work().spend(20 * (a.members.size() + b.members.size())));
  const auto by_name = [](const ObjectShape& shape) {
    std::unordered_map<std::string_view, const Member*> out;
    for (const Member& member : shape.members) out.emplace(member.name, &member);
    return out;
  };
  const auto of_a = by_name(a);
  const auto of_b = by_name(b);
  ObjectShape out{.names_something = a.names_something || b.names_something,
                  .min = std::max(a.min, b.min),
                  .max = a.max < 0   ? b.max
                         : b.max < 0 ? a.max
                                     : std::min(a.max, b.max)};
  for (const Member& member : a.members) {
    const auto found = of_b.find(member.name);
    const Member* other = found == of_b.end() ? nullptr : found->second;
    const TypeId of_other = other != nullptr ? other->value : TRY(value_of(b, member.name));
    const TypeId value = TRY(join(member.value, of_other));
    out.members.push_back({member.name, value, member.required || (other != nullptr && other->required)});
  }
  for (const Member& member : b.members) {
    if (of_a.contains(member.name)) continue;
    const TypeId value = TRY(join(member.value, TRY(value_of(a, member.name))));
    out.members.push_back({member.name, value, member.required});
  }
  for (const NameClass& one : a.classes) {
    for (const NameClass& other : b.classes) {
      const TypeId value = TRY(join(one.value, other.value));
      NameClass made{schema::both(one.names, other.names), value, one.implied && other.implied};
      const bool restricted = !one.names.free() && !other.names.free();
      if (restricted && TRY(texts_.empty(made.names, Reading::kWide))) continue;
      out.classes.push_back(std::move(made));
      if (out.classes.size() > kMaxShapes) {
        return invalid_argument(fmt::format("its patterns of names come to more than {} combinations", kMaxShapes));
      }
    }
  }
  return out;
}

}  // namespace tessera::schema
