// SettledTypes::apart(): for two overlapping shapes, finds parts of the first that are disjoint from the second and
// that a grammar can express.
#include <algorithm>
#include <utility>

#include "tessera/engine/schema/settled_types.h"

namespace tessera::schema {

Result<std::optional<Shapes>> SettledTypes::apart(const Shape& closed, const Shape& other, const LeftOut& what,
                                                  std::size_t most) {
  const ObjectShape* object = closed.get<ObjectShape>();
  const ArrayShape* array = closed.get<ArrayShape>();
  if (object != nullptr && other.get<ObjectShape>() != nullptr)
    return object_apart(*object, *other.get<ObjectShape>(), what, most);
  if (array != nullptr && other.get<ArrayShape>() != nullptr)
    return array_apart(*array, *other.get<ArrayShape>(), what);
  return std::optional<Shapes>();
}

Result<Shape> SettledTypes::with_member(const ObjectShape& object, const Member& member) {
  ObjectShape out = object;
  const auto known = std::ranges::find(out.members, member.name, &Member::name);
  if (known != out.members.end()) {
    *known = member;
    return Shape{.values = std::move(out)};
  }
  out.members.push_back(member);
  for (NameClass& one : out.classes) {
    if (TRY(table_.texts().contains(one.names, member.name, Reading::kWide)))
      TRY(table_.texts().leave_out_texts(one.names, {member.name}));
  }
  return Shape{.values = std::move(out)};
}

Result<std::optional<Shapes>> SettledTypes::object_apart(const ObjectShape& object, const ObjectShape& other,
                                                         const LeftOut& what, std::size_t most) {
  const TypeId any = TRY(table_.any());
  const TypeId never = TRY(table_.never());
  Shapes out;
  const auto add = [&](const Member& member) -> Status {
    if (out.size() < most) out.push_back(TRY(with_member(object, member)));
    return ok_status();
  };
  const auto all = [&] { return std::optional(Shapes{{.values = object}}); };
  for (const Member& wanted : other.members) {
    const Member* member = object.find(wanted.name);
    const TypeId here = member != nullptr ? member->value : TRY(table_.value_of(object, wanted.name));
    if (here == never) {
      if (wanted.required) return all();
      continue;
    }
    const bool required = member != nullptr && member->required;
    if (wanted.required && !required) TRY(add({wanted.name, never, false}));
    if (wanted.value == any) continue;
    if (required && TRY(table_.shapes(TRY(table_.join(here, wanted.value))))->empty()) return all();
    const TypeId rest = TRY(table_.join(here, TRY(table_.complement(wanted.value, what))));
    TRY(add({wanted.name, rest, true}));
  }
  for (const Member& member : object.members) {
    if (other.find(member.name) != nullptr || member.value == never) continue;
    const TypeId there = TRY(table_.value_of(other, member.name));
    if (there == any) continue;
    if (there == never && member.required) return all();
    const TypeId rest =
        there == never ? member.value : TRY(table_.join(member.value, TRY(table_.complement(there, what))));
    TRY(add({member.name, rest, true}));
  }
  if (out.empty()) return std::optional<Shapes>();
  return std::optional(std::move(out));
}

// Returns up to three parts of `array`: arrays with fewer items than `other` allows, arrays with more items than it
// allows, and arrays whose first item is not of the type of the first item in `other`.
Result<std::optional<Shapes>> SettledTypes::array_apart(const ArrayShape& array, const ArrayShape& other,
                                                        const LeftOut& what) {
  Shapes out;
  const auto add = [&](ArrayShape piece) {
    if (piece.max < 0 || piece.min <= piece.max) out.push_back({.values = std::move(piece)});
  };
  if (other.min > array.min) {
    ArrayShape fewer = array;
    fewer.max = array.max < 0 ? other.min - 1 : std::min(array.max, other.min - 1);
    add(std::move(fewer));
  }
  if (other.max >= 0) {
    ArrayShape more = array;
    more.min = std::max(array.min, other.max + 1);
    add(std::move(more));
  }
  if (other.item(0) != TRY(table_.any())) {
    ArrayShape differs = array;
    const TypeId first = TRY(table_.join(array.item(0), TRY(table_.complement(other.item(0), what))));
    if (differs.prefix.empty()) differs.prefix.push_back(first);
    differs.prefix.front() = first;
    differs.min = std::max<std::int64_t>(array.min, 1);
    add(std::move(differs));
  }
  if (out.empty()) return std::optional<Shapes>();
  return std::optional(std::move(out));
}

}  // namespace tessera::schema
