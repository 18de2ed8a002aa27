// Decides whether a type contains a value.
#include <algorithm>
#include <unordered_map>

#include "tessera/engine/schema/type_table.h"

namespace tessera::schema {
namespace {

Reading opposite(Reading reading) { return reading == Reading::kNarrow ? Reading::kWide : Reading::kNarrow; }

// Returns the number of values within a JSON value, itself included.
std::size_t count_values(const Json& value) {
  std::size_t count = 1;
  if (value.is_array()) {
    for (const Json& item : value.as_array()) count += count_values(item);
  } else if (value.is_object()) {
    for (const auto& [name, member] : value.as_object()) count += count_values(member);
  }
  return count;
}

bool in_range(std::size_t count, std::int64_t min, std::int64_t max) {
  const auto number = static_cast<std::int64_t>(count);
  return number >= min && (max < 0 || number <= max);
}

}  // namespace

bool equal_values(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_int() && b.is_int()) return a == b;
    return a.as_double() == b.as_double();
  }
  if (a.type_name() != b.type_name()) return false;
  if (a.is_array()) return std::ranges::equal(a.as_array(), b.as_array(), equal_values);
  if (!a.is_object()) return a == b;
  if (a.as_object().size() != b.as_object().size()) return false;
  std::unordered_map<std::string_view, const Json*> others;
  for (const auto& [name, other] : b.as_object()) others.emplace(name, &other);
  return std::ranges::all_of(a.as_object(), [&](const Json::Member& member) {
    const auto other = others.find(member.first);
    return other != others.end() && equal_values(member.second, *other->second);
  });
}

Result<bool> TypeTable::admits(TypeId type, const Json& value, Reading reading) {
  for (const Shape& shape : *TRY(shapes(type))) {
    if (TRY(admits(shape, value, reading))) return true;
  }
  return false;
}

Result<bool> TypeTable::admits(const Shape& shape, const Json& value, Reading reading) {
  TRY(texts_.work().spend(50));
  bool held = false;
  if (const Json* only = shape.get<Json>()) {
    TRY(texts_.work().spend(10 * count_values(value)));
    held = equal_values(*only, value);
  } else if (const NumberSet* numbers = shape.get<NumberSet>()) {
    held = value.is_number() && contains(*numbers, value);
  } else if (const TextSet* texts = shape.get<TextSet>()) {
    held = value.is_string() && TRY(texts_.contains(*texts, value.as_string(), reading));
  } else if (const ArrayShape* array = shape.get<ArrayShape>()) {
    held = value.is_array() && TRY(admits_array(*array, value, reading));
  } else {
    held = value.is_object() && TRY(admits_object(*shape.get<ObjectShape>(), value, reading));
  }
  if (!held) return false;
  for (const LeftOut& other : shape.left_out) {
    if (TRY(admits(other.type, value, opposite(reading)))) return false;
  }
  return true;
}

Result<bool> TypeTable::admits_array(const ArrayShape& shape, const Json& value, Reading reading) {
  const Json::Array& items = value.as_array();
  if (!in_range(items.size(), shape.min, shape.max)) return false;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!TRY(admits(shape.item(i), items[i], reading))) return false;
    if (!shape.unique) continue;
    TRY(texts_.work().spend(10 * i * count_values(items[i])));
    const auto equals = [&](const Json& other) { return equal_values(other, items[i]); };
    if (std::any_of(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(i), equals)) return false;
  }
  return true;
}

Result<bool> TypeTable::admits_object(const ObjectShape& shape, const Json& value, Reading reading) {
  if (!in_range(value.as_object().size(), shape.min, shape.max)) return false;
  TRY(texts_.work().spend(2 * shape.members.size() * value.as_object().size()));
  for (const Member& member : shape.members) {
    if (member.required && value.find(member.name) == nullptr) return false;
  }
  for (const auto& [name, one] : value.as_object()) {
    bool held = false;
    if (const Member* member = shape.find(name)) {
      held = TRY(admits(member->value, one, reading));
    } else {
      for (const NameClass& names : shape.classes) {
        held = held || (TRY(texts_.contains(names.names, name, reading)) && TRY(admits(names.value, one, reading)));
      }
    }
    if (!held) return false;
  }
  return true;
}

}  // namespace tessera::schema
