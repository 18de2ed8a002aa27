#include "tessera/text/jinja/value.h"

#include <algorithm>

#include "tessera/text/jinja/python_string.h"
#include "tessera/text/unicode.h"

namespace tessera::jinja {
namespace {

Result<int> depth_of(const Value& value) {
  if (value.is_namespace()) return unimplemented("a namespace inside a list, dict or namespace is not supported");
  if (value.is_list()) return value.as_list().depth;
  if (value.is_dict()) return value.as_dict().depth;
  return 0;
}

Status check_depth(int depth) {
  if (depth <= kMaxValueDepth) return ok_status();
  return resource_exhausted("a value nested deeper than " + std::to_string(kMaxValueDepth));
}

int sign(bool less, bool greater) { return less ? -1 : (greater ? 1 : 0); }

bool both_sequences(const Value& a, const Value& b) {
  const auto ordinary = [](const Value& v) {
    return v.is_kind(List::Kind::kList) || v.is_kind(List::Kind::kTuple) || v.is_kind(List::Kind::kRange);
  };
  return ordinary(a) && ordinary(b) && a.as_list().kind == b.as_list().kind;
}

Result<bool> equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = TRY(find_key(b, key, budget));
    if (other == nullptr || !TRY(equal(value, *other, budget))) return false;
  }
  return true;
}

}  // namespace

Status Budget::spend(std::int64_t steps) {
  steps_left_ -= steps;
  if (steps_left_ >= 0) return ok_status();
  steps_left_ = 0;
  return resource_exhausted("the template takes more steps than it may");
}

Status Budget::spend_bytes(std::size_t bytes) {
  if (bytes > max_bytes_) {
    return resource_exhausted("a text of " + std::to_string(bytes) + " bytes; accepted: at most " +
                              std::to_string(max_bytes_));
  }
  return spend(static_cast<std::int64_t>(bytes / kBytesOfStep));
}

Value::Value(std::string v) : data_(std::make_shared<const Text>(Text{std::move(v), false})) {}

Value Value::safe_text(std::string bytes) { return {std::make_shared<const Text>(Text{std::move(bytes), true})}; }

Value Value::undefined(std::string why) {
  Value out;
  out.data_ = std::make_shared<const Undefined>(Undefined{std::move(why)});
  return out;
}

Result<Value> Value::list(std::vector<Value> items, List::Kind kind) {
  auto list = std::make_shared<List>();
  for (const Value& item : items) list->depth = std::max(list->depth, 1 + TRY(depth_of(item)));
  TRY(check_depth(list->depth));
  list->kind = kind;
  list->items = std::move(items);
  return Value(std::shared_ptr<const List>(std::move(list)));
}

Result<Value> Value::dict(std::vector<std::pair<Value, Value>> items) {
  auto dict = std::make_shared<Dict>();
  // Only keys that are not strings are compared one by one. A dict has few such keys, so this work needs no budget.
  Budget unlimited(INT64_MAX, SIZE_MAX);
  for (auto& [key, value] : items) {
    if (!key.is_string() && !key.is_number() && !key.is_none()) {
      return invalid_argument("a dict key of type '" + std::string(type_name(key)) +
                              "'; accepted: strings, numbers, booleans, none");
    }
    dict->depth = std::max(dict->depth, 1 + TRY(depth_of(value)));
    if (const Value* there = TRY(find_key(*dict, key, unlimited)); there != nullptr) {
      *const_cast<Value*>(there) = std::move(value);
      continue;
    }
    dict->items.emplace_back(std::move(key), std::move(value));
    // The index holds a view of the key's text. Later insertions do not move that text, because the key only points to
    // the text.
    const Value& stored = dict->items.back().first;
    if (stored.is_string()) dict->index.emplace(stored.as_string(), dict->items.size() - 1);
  }
  TRY(check_depth(dict->depth));
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

Result<Value> Value::from_json(const Json& json) {
  if (json.is_bool()) return Value(json.as_bool());
  if (json.is_int()) return Value(json.as_int());
  if (json.is_number()) return Value(json.as_double());
  if (json.is_string()) return Value(replace_invalid_utf8(json.as_string()));
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.as_array().size());
    for (const Json& item : json.as_array()) items.push_back(TRY(from_json(item)));
    return list(std::move(items));
  }
  if (json.is_object()) {
    std::vector<std::pair<Value, Value>> items;
    items.reserve(json.as_object().size());
    for (const auto& [key, value] : json.as_object()) {
      Value member = TRY(from_json(value));
      items.emplace_back(Value(replace_invalid_utf8(key)), std::move(member));
    }
    return dict(std::move(items));
  }
  return Value();
}

std::string_view type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.is_bool()) return "bool";
  if (value.is_int()) return "int";
  if (value.is_float()) return "float";
  if (value.is_string()) return "str";
  if (value.is_dict()) return "dict";
  if (value.is_namespace()) return "Namespace";
  if (value.is_function()) return "function";
  if (value.is_loop()) return "LoopContext";
  switch (value.as_list().kind) {
    case List::Kind::kList: return "list";
    case List::Kind::kTuple: return "tuple";
    case List::Kind::kRange: return "range";
    case List::Kind::kGenerator: return "generator";
    case List::Kind::kKeys: return "dict_keys";
    case List::Kind::kValues: return "dict_values";
    case List::Kind::kItems: return "dict_items";
  }
  return "?";
}

bool truthy(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_bool()) return value.as_bool();
  if (value.is_int()) return value.as_int() != 0;
  if (value.is_float()) return value.as_double() != 0.0;
  if (value.is_string()) return !value.as_string().empty();
  if (value.is_kind(List::Kind::kGenerator)) return true;
  if (value.is_list()) return !value.as_list().items.empty();
  if (value.is_dict()) return !value.as_dict().items.empty();
  return true;
}

Result<bool> equal(const Value& a, const Value& b, Budget& budget) {
  TRY(budget.spend());
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.is_string() && b.is_string()) {
    if (a.as_string().size() != b.as_string().size()) return false;
    TRY(budget.spend_bytes(a.as_string().size()));
    return a.as_string() == b.as_string();
  }
  if (a.is_none() || a.is_undefined()) return a.is_none() ? b.is_none() : b.is_undefined();
  if (both_sequences(a, b)) {
    const auto& left = a.as_list().items;
    const auto& right = b.as_list().items;
    if (left.size() != right.size()) return false;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (!TRY(equal(left[i], right[i], budget))) return false;
    }
    return true;
  }
  if (a.is_dict() && b.is_dict()) return equal_dicts(a.as_dict(), b.as_dict(), budget);
  if (a.is_namespace() && b.is_namespace()) return &a.as_namespace() == &b.as_namespace();
  if (a.is_function() && b.is_function()) return &a.as_function() == &b.as_function();
  if (a.is_loop() && b.is_loop()) return a.as_loop() == b.as_loop();
  if (a.is_list() && b.is_list()) return &a.as_list() == &b.as_list();
  return false;
}

Result<int> compare(const Value& a, const Value& b, Budget& budget) {
  TRY(budget.spend());
  if (a.is_undefined()) return invalid_argument(a.why_undefined());
  if (b.is_undefined()) return invalid_argument(b.why_undefined());
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) return sign(a.as_int() < b.as_int(), a.as_int() > b.as_int());
    return sign(a.as_double() < b.as_double(), a.as_double() > b.as_double());
  }
  // The order of UTF-8 bytes equals the order of code points.
  if (a.is_string() && b.is_string()) {
    TRY(budget.spend_bytes(std::min(a.as_string().size(), b.as_string().size())));
    const int order = a.as_string().compare(b.as_string());
    return sign(order<0, order> 0);
  }
  if (both_sequences(a, b) && a.as_list().kind != List::Kind::kRange) {
    const auto& left = a.as_list().items;
    const auto& right = b.as_list().items;
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!TRY(equal(left[i], right[i], budget))) return compare(left[i], right[i], budget);
    }
    return sign(left.size() < right.size(), left.size() > right.size());
  }
  return invalid_argument("values of type '" + std::string(type_name(a)) + "' and '" + std::string(type_name(b)) +
                          "' have no order");
}

Status check_hashable(const Value& value) {
  if (!value.is_dict() && !value.is_kind(List::Kind::kList)) return ok_status();
  return invalid_argument("unhashable type: '" + std::string(type_name(value)) + "'");
}

const Value* find_key(const Dict& dict, std::string_view key) {
  const auto it = dict.index.find(key);
  return it == dict.index.end() ? nullptr : &dict.items[it->second].second;
}

Result<const Value*> find_key(const Dict& dict, const Value& key, Budget& budget) {
  if (key.is_string()) {
    TRY(budget.spend_bytes(key.as_string().size()));
    return find_key(dict, std::string_view(key.as_string()));
  }
  if (dict.index.size() == dict.items.size()) return nullptr;
  for (const auto& [other, value] : dict.items) {
    if (!other.is_string() && TRY(equal(other, key, budget))) return &value;
  }
  return nullptr;
}

Result<bool> contains(const Value& haystack, const Value& needle, Budget& budget) {
  if (haystack.is_string()) {
    if (!needle.is_string()) {
      return invalid_argument("'in <string>' requires string as left operand, not " + std::string(type_name(needle)));
    }
    TRY(budget.spend_bytes(haystack.as_string().size()));
    return find_first(haystack.as_string(), needle.as_string()) != std::string::npos;
  }
  if (haystack.is_dict()) {
    TRY(check_hashable(needle));
    return TRY(find_key(haystack.as_dict(), needle, budget)) != nullptr;
  }
  const std::shared_ptr<const List> items = TRY(iterate(haystack, budget));
  for (const Value& item : items->items) {
    if (!TRY(equal(item, needle, budget))) continue;
    if (haystack.is_kind(List::Kind::kGenerator)) haystack.as_list().use = List::Use::kPartly;
    return true;
  }
  return false;
}

std::vector<Value> characters(std::string_view text) {
  std::vector<Value> out;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t length = decode_utf8(text, pos).length;
    out.emplace_back(std::string(text.substr(pos, length)));
    pos += length;
  }
  return out;
}

Result<std::shared_ptr<const List>> iterate(const Value& value, Budget& budget) {
  if (value.is_list()) {
    const List& list = value.as_list();
    TRY(budget.spend(static_cast<std::int64_t>(list.items.size())));
    if (list.kind == List::Kind::kGenerator) {
      if (list.use == List::Use::kPartly) {
        return unimplemented("going on with a generator after a part of it was used is not supported; use |list");
      }
      if (list.use == List::Use::kDone) return std::make_shared<const List>();
      list.use = List::Use::kDone;
    }
    return value.list_pointer();
  }
  auto out = std::make_shared<List>();
  if (value.is_dict()) {
    for (const auto& [key, item] : value.as_dict().items) out->items.push_back(key);
  } else if (value.is_string()) {
    TRY(budget.spend(static_cast<std::int64_t>(value.as_string().size())));
    out->items = characters(value.as_string());
  } else if (!value.is_undefined()) {
    return invalid_argument("'" + std::string(type_name(value)) + "' object is not iterable");
  }
  TRY(budget.spend(static_cast<std::int64_t>(out->items.size())));
  return std::shared_ptr<const List>(std::move(out));
}

}  // namespace tessera::jinja
