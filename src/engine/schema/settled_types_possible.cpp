// Finds, by a fixed-point iteration, the types that have values. At first no type is known to have a value.
#include <algorithm>

#include "tessera/engine/schema/settled_types.h"

namespace tessera::schema {
namespace {

// The elements that an object or array can have: `count` listed ones and, with `any_number`, any number of others.
struct Available {
  std::int64_t count = 0;
  bool any_number = false;
};

bool range_holds(std::int64_t min, std::int64_t max, std::int64_t needed, const Available& available) {
  if (max >= 0 && (max < min || max < needed)) return false;
  return available.any_number || available.count >= min;
}

// Returns whether some array has this shape. `has(type)` says whether a type has values.
template <class Has>
bool array_holds(const ArrayShape& array, const Has& has) {
  Available items;
  for (const TypeId item : array.prefix) {
    if (!has(item)) return range_holds(array.min, array.max, 0, items);
    ++items.count;
  }
  items.any_number = has(array.rest);
  return range_holds(array.min, array.max, 0, items);
}

template <class Has>
bool object_holds(const ObjectShape& object, const Has& has) {
  Available names;
  std::int64_t needed = 0;
  for (const Member& member : object.members) {
    if (has(member.value)) {
      ++names.count;
    } else if (member.required) {
      return false;
    }
    if (member.required) ++needed;
  }
  names.any_number = std::ranges::any_of(object.classes, [&](const NameClass& one) { return has(one.value); });
  return range_holds(object.min, object.max, needed, names);
}

}  // namespace

Status SettledTypes::spend_on_parts(const Shape& shape) {
  std::size_t parts = 0;
  if (const ArrayShape* array = shape.get<ArrayShape>()) parts = array->prefix.size();
  if (const ObjectShape* object = shape.get<ObjectShape>()) parts = object->members.size() + object->classes.size();
  return table_.texts().work().spend(parts);
}

Result<bool> SettledTypes::inhabited(const Shape& shape) {
  TRY(spend_on_parts(shape));
  const auto has = [&](TypeId type) { return at(type).inhabited; };
  if (const NumberSet* numbers = shape.get<NumberSet>()) return !provably_empty(*numbers);
  if (const TextSet* texts = shape.get<TextSet>()) return !TRY(table_.texts().empty(*texts, Reading::kWide));
  if (const ArrayShape* array = shape.get<ArrayShape>()) return array_holds(*array, has);
  if (const ObjectShape* object = shape.get<ObjectShape>()) return object_holds(*object, has);
  return true;
}

Result<bool> SettledTypes::possible(const Shape& shape) {
  TRY(spend_on_parts(shape));
  const auto has = [&](TypeId type) { return at(type).possible; };
  if (const NumberSet* numbers = shape.get<NumberSet>()) return has_texts(*numbers, table_.texts().work());
  if (const TextSet* texts = shape.get<TextSet>()) return !TRY(table_.texts().empty(*texts, Reading::kNarrow));
  if (const ArrayShape* array = shape.get<ArrayShape>()) {
    if (!array_holds(*array, has)) return false;
    if (!array->unique || array->min < 2) return true;
    const auto few = TRY(few_values(*this, array->rest));
    return !few || static_cast<std::int64_t>(few->size()) >= array->min;
  }
  if (const ObjectShape* object = shape.get<ObjectShape>()) return object_holds(*object, has);
  return true;
}

// Visits all types that are not known to have a value, again and again until nothing changes. There are few types.
// Few rounds are needed, because types are not nested deeply.
Status SettledTypes::find_inhabited() {
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < types_.size(); ++i) {
      if (!types_[i].reached || types_[i].inhabited) continue;
      TRY(table_.texts().work().spend(100));
      for (const Shape& shape : *TRY(table_.shapes(static_cast<TypeId>(i)))) {
        if (TRY(inhabited(shape))) types_[i].inhabited = true;
      }
      changed |= types_[i].inhabited;
    }
  }
  return ok_status();
}

Status SettledTypes::find_possible() {
  for (bool changed = true; changed;) {
    changed = false;
    // Visits types from the newest to the oldest, because parts are mostly newer than the types that contain them.
    for (std::size_t i = types_.size(); i-- > 0;) {
      if (!types_[i].generated || types_[i].possible) continue;
      TRY(table_.texts().work().spend(100));
      for (const Shape& shape : types_[i].shapes) {
        if (types_[i].possible) break;
        const Result<bool> has = possible(shape);
        if (!has.ok()) return table_.placed(has.status(), static_cast<TypeId>(i));
        types_[i].possible = *has;
      }
      changed |= types_[i].possible;
    }
  }
  return ok_status();
}

}  // namespace tessera::schema
