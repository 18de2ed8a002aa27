#include "tessera/engine/schema/settled_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

namespace tessera::schema {
namespace {

constexpr std::size_t kMaxNamesOfClass = 64;  // maximum number of a class's names that become members
constexpr std::int64_t kMaxFewValues = 512;
constexpr std::size_t kMaxPieces = 8;      // maximum number of parts of the difference of two objects
constexpr std::size_t kMaxToldApart = 64;  // maximum number of overlapping schemas that are made disjoint (apart())

// Returns whether the shape contains every array, or every object.
bool holds_all(const Shape& shape, TypeId any) {
  if (const ArrayShape* array = shape.get<ArrayShape>()) {
    return array->min == 0 && array->max < 0 && !array->unique && array->rest == any &&
           std::ranges::all_of(array->prefix, [&](TypeId item) { return item == any; });
  }
  const ObjectShape* object = shape.get<ObjectShape>();
  if (object == nullptr || object->min > 0 || object->max >= 0) return false;
  return std::ranges::all_of(object->members, [&](const Member& one) { return !one.required && one.value == any; }) &&
         std::ranges::all_of(object->classes, [&](const NameClass& one) { return one.value == any; }) &&
         std::ranges::any_of(object->classes, [](const NameClass& one) { return one.names.free(); });
}

NumberSet only_number(const Json& value) {
  const long double number =
      value.is_int() ? static_cast<long double>(value.as_int()) : static_cast<long double>(value.as_double());
  return {.low = NumberSet::Bound{number}, .high = NumberSet::Bound{number}};
}

}  // namespace

SettledTypes::Type& SettledTypes::at(TypeId type) {
  const auto index = static_cast<std::size_t>(type);
  if (types_.size() <= index) types_.resize(std::max(index + 1, table_.size()));
  return types_[index];
}

void SettledTypes::visit(TypeId type, bool generated) {
  Type& one = at(type);
  bool& seen = generated ? one.generated : one.reached;
  if (!seen) (generated ? to_settle_ : to_reach_).push_back(type);
  seen = true;
}

void SettledTypes::visit_parts(const Shape& shape, bool generated) {
  if (const ArrayShape* array = shape.get<ArrayShape>()) {
    for (const TypeId item : array->prefix) visit(item, generated);
    visit(array->rest, generated);
  } else if (const ObjectShape* object = shape.get<ObjectShape>()) {
    for (const Member& member : object->members) visit(member.value, generated);
    for (const NameClass& one : object->classes) visit(one.value, generated);
  }
}

Result<SettledTypes> SettledTypes::create(TypeTable& table, TypeId root) {
  // If two schemas overlap, makes them disjoint by one property or item (apart()), and settles all types again.
  std::set<std::pair<const Json*, TypeId>> told_apart;
  while (true) {
    SettledTypes out(table);
    out.told_apart_ = told_apart;
    TRY(out.reach(root));
    TRY(out.find_inhabited());
    for (const Overlap& overlap : out.overlaps_) {
      if (!TRY(out.inhabited(overlap.shape))) continue;
      if (out.told_apart_.contains({overlap.with.at, overlap.with.type})) return out.refuse(overlap.with);
      told_apart.emplace(overlap.with.at, overlap.with.type);
    }
    if (told_apart.size() > kMaxToldApart) return out.refuse(out.overlaps_.front().with);
    if (told_apart.size() > out.told_apart_.size()) continue;
    TRY(out.find_possible());
    return out;
  }
}

Status SettledTypes::reach(TypeId root) {
  visit(root, /*generated=*/true);
  while (!to_settle_.empty() || !to_reach_.empty()) {
    if (!to_settle_.empty()) {
      const TypeId type = to_settle_.back();
      to_settle_.pop_back();
      TRY(table_.placed(settle(type), type));
    } else {
      const TypeId type = to_reach_.back();
      to_reach_.pop_back();
      for (const Shape& shape : *TRY(table_.shapes(type))) visit_parts(shape, /*generated=*/false);
    }
  }
  at(static_cast<TypeId>(table_.size()) - 1);  // reserves an entry for every type
  return ok_status();
}

Status SettledTypes::settle(TypeId type) {
  Shapes made;
  for (const Shape& shape : *TRY(table_.shapes(type))) {
    Shapes parts = {shape};
    for (const LeftOut& other : shape.left_out) {
      Shapes rest;
      for (const Shape& part : parts) {
        for (Shape& one : TRY(without(part, other))) rest.push_back(std::move(one));
      }
      parts = std::move(rest);
    }
    for (const Shape& part : parts) made.push_back(TRY(as_generated(part)));
  }
  for (const Shape& shape : made) visit_parts(shape, /*generated=*/true);
  at(type).shapes = std::move(made);
  return ok_status();
}

Status SettledTypes::refuse(const LeftOut& what) const {
  const std::string_view reason =
      what.keyword == "oneOf"
          ? "its alternatives overlap: a value may be of two of them, which oneOf forbids and a grammar cannot keep "
            "out; "
            "accepted: alternatives that exclude each other (by type, by a const or enum of a required property, by "
            "required properties and \"additionalProperties\": false), or \"anyOf\""
          : "what it forbids cannot be kept out by a grammar";
  return table_.error(StatusCode::kUnimplemented, *what.at, what.keyword, reason);
}

Result<Shapes> SettledTypes::without(const Shape& shape, const LeftOut& other) {
  const Shapes here = {shape};
  if (const Json* value = shape.get<Json>()) {
    return TRY(table_.admits(other.type, *value, Reading::kWide)) ? Shapes() : here;
  }
  Shapes out = here;
  if (TextSet* texts = out.front().get<TextSet>()) {
    if (!TRY(table_.leave_out(*texts, other.type))) out.clear();
    return out;
  }
  for (const Shape& one : *TRY(table_.shapes(other.type))) {
    Shapes rest;
    for (Shape& part : out) {
      if (part.get<NumberSet>() != nullptr) {
        for (Shape& piece : TRY(number_without(part, one, other))) rest.push_back(std::move(piece));
      } else {
        if (part.values.index() == one.values.index() && holds_all(one, TRY(table_.any()))) continue;
        const Shape closed = TRY(as_generated(part));
        if (told_apart_.contains({other.at, other.type})) {
          const std::size_t most = rest.size() < kMaxPieces ? kMaxPieces : 1;
          if (const std::optional<Shapes> pieces = TRY(apart(closed, one, other, most))) {
            rest.insert(rest.end(), pieces->begin(), pieces->end());
            continue;
          }
        } else if (const std::optional<Shapes> pieces = TRY(object_without(closed, one, other))) {
          rest.insert(rest.end(), pieces->begin(), pieces->end());
          continue;
        }
        for (Shape& overlap : TRY(table_.both(closed, {.values = one.values}))) {
          visit_parts(overlap, /*generated=*/false);
          overlaps_.push_back({std::move(overlap), other});
        }
        rest.push_back(std::move(part));
      }
    }
    out = std::move(rest);
  }
  return out;
}

Result<Shapes> SettledTypes::number_without(const Shape& shape, const Shape& other, const LeftOut& what) {
  const NumberSet& numbers = *shape.get<NumberSet>();
  const Json* value = other.get<Json>();
  if (other.get<NumberSet>() == nullptr && (value == nullptr || !value->is_number())) return Shapes{shape};
  const NumberSet others = value != nullptr ? only_number(*value) : *other.get<NumberSet>();
  if (provably_empty(schema::both(numbers, others))) return Shapes{shape};
  const std::optional<std::vector<NumberSet>> pieces = schema::without(numbers, others);
  if (!pieces) return refuse(what);
  Shapes out;
  for (const NumberSet& piece : *pieces) out.push_back({.values = piece});
  return out;
}

// Returns the parts of an object shape that are not in `other`: in each part, one property differs from what `other`
// allows. Returns nothing if there would be many parts, or if properties alone do not decide whether an object is in
// `other`.
Result<std::optional<Shapes>> SettledTypes::object_without(const Shape& closed, const Shape& other,
                                                           const LeftOut& what) {
  const ObjectShape* object = closed.get<ObjectShape>();
  const ObjectShape* others = other.get<ObjectShape>();
  const std::optional<Shapes> none;
  if (object == nullptr || others == nullptr || others->min > 0 || others->max >= 0) return none;
  const TypeId any = TRY(table_.any());
  for (const NameClass& one : others->classes) {
    if (one.value != any) return none;
  }
  const bool any_name = std::ranges::any_of(others->classes, [](const NameClass& one) { return one.names.free(); });
  // `other` must allow every name. Otherwise an object could be outside `other` because of a property's name, but the
  // parts below are outside `other` only because of properties' values.
  if (!any_name) return none;
  Shapes out;
  const auto add = [&](const Member& member, TypeId value, bool required) {
    ObjectShape piece = *object;
    for (Member& one : piece.members) {
      if (one.name == member.name) one = {one.name, value, required};
    }
    out.push_back({.values = std::move(piece)});
  };
  for (const Member& wanted : others->members) {
    const Member* member = object->find(wanted.name);
    if (member == nullptr) {
      for (const NameClass& one : object->classes) {
        if (TRY(table_.texts().contains(one.names, wanted.name, Reading::kWide))) return none;
      }
      if (wanted.required) return std::optional(Shapes{closed});
      continue;
    }
    if (wanted.required && !member->required) add(*member, TRY(table_.never()), false);
    if (wanted.value == any) continue;
    const TypeId common = TRY(table_.join(member->value, wanted.value));
    const bool apart = TRY(table_.shapes(common))->empty();
    if (apart && member->required) return std::optional(Shapes{closed});
    add(*member, TRY(table_.join(member->value, TRY(table_.complement(wanted.value, what)))), true);
  }
  if (out.size() > kMaxPieces) return none;
  return std::optional(std::move(out));
}

// Returns the shape without the items and properties that the schema does not mention, unless they are needed. Also
// removes the names of members from the name classes.
Result<Shape> SettledTypes::as_generated(const Shape& shape) {
  Shape out{.values = shape.values};
  if (ArrayShape* array = out.get<ArrayShape>()) {
    if (array->closed()) array->rest = TRY(table_.never());
    array->implied = false;
  } else if (ObjectShape* object = out.get<ObjectShape>()) {
    if (object->closed()) std::erase_if(object->classes, [](const NameClass& one) { return one.implied; });
    TRY(keep_names_apart(*object));
  }
  return out;
}

Status SettledTypes::keep_names_apart(ObjectShape& shape) {
  std::vector<NameClass> classes;
  const std::size_t members = shape.members.size();
  for (NameClass& one : shape.classes) {
    one.implied = false;
    const bool any_name = one.names.terms.empty();
    std::vector<std::string> taken;
    for (std::size_t i = 0; i < members; ++i) {
      const std::string& name = shape.members[i].name;
      if (TRY(table_.texts().contains(one.names, name, Reading::kWide))) taken.push_back(name);
    }
    const bool all_free = any_name && (taken.empty() || one.names.max < 0);
    if (!taken.empty()) TRY(table_.texts().leave_out_texts(one.names, std::move(taken)));
    if (all_free) {
      if (one.names.max < 0 || one.names.min <= one.names.max) classes.push_back(std::move(one));
      continue;
    }
    const std::shared_ptr<const Automaton> automaton = TRY(table_.texts().automaton(one.names, Reading::kNarrow));
    if (const auto few = finite_texts(*automaton, kMaxNamesOfClass)) {
      for (const std::string& name : *few) shape.members.push_back({name, one.value, false});
    } else {
      classes.push_back(std::move(one));
    }
  }
  shape.classes = std::move(classes);
  return ok_status();
}

Result<std::optional<std::vector<Json>>> few_values(const SettledTypes& types, TypeId type) {
  std::vector<Json> out;
  const std::optional<std::vector<Json>> none;
  const auto add = [&](const Json& value) {
    const bool known = std::ranges::any_of(out, [&](const Json& other) { return equal_values(other, value); });
    if (!known) out.push_back(value);
  };
  for (const Shape& shape : types.shapes(type)) {
    if (out.size() > static_cast<std::size_t>(kMaxFewValues)) return none;
    if (const Json* value = shape.get<Json>()) {
      add(*value);
      continue;
    }
    const NumberSet* numbers = shape.get<NumberSet>();
    const auto integers = numbers == nullptr ? std::nullopt : finite_integers(*numbers, kMaxFewValues);
    if (!integers) return none;
    for (const std::int64_t value : *integers) add(Json(value));
  }
  if (out.size() > static_cast<std::size_t>(kMaxFewValues)) return none;
  return std::optional(std::move(out));
}

}  // namespace tessera::schema
