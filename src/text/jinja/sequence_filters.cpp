// Implements the filters of sequences, which select, order and join items.
#include <algorithm>
#include <numeric>

#include "tessera/text/jinja/arguments.h"
#include "tessera/text/jinja/filters.h"
#include "tessera/text/jinja/interpreter.h"
#include "tessera/text/jinja/letter_case.h"
#include "tessera/text/jinja/operators.h"
#include "tessera/text/jinja/print.h"
#include "tessera/text/jinja/python_string.h"
#include "tessera/text/jinja/value_tests.h"
#include "tessera/text/unicode.h"

namespace tessera::jinja {
namespace {

using ListPointer = std::shared_ptr<const List>;

Result<Value> generator(std::vector<Value> items) { return Value::list(std::move(items), List::Kind::kGenerator); }

// The key by which items of a sequence are sorted or compared.
struct KeyRule {
  const Value* attribute = nullptr;  // null: the item itself
  bool case_sensitive = false;

  Result<Value> key(const Value& item, Budget& budget) const {
    Value out = item;
    if (attribute != nullptr) out = TRY(get_path(item, *attribute, nullptr, budget));
    if (!case_sensitive && out.is_string()) out = Value(lower(out.as_string()));
    return out;
  }
  // Returns the key by which sorting orders an item: a list with one element for each attribute in "a,b". The key is a
  // list even for one attribute. Python compares two lists by their first unequal elements, so it never asks which of
  // two equal values is less. For types without an order, this question would be an error.
  Result<Value> sort_key(const Value& item, Budget& budget) const {
    if (attribute == nullptr || !attribute->is_string()) return Value::list({TRY(key(item, budget))});
    std::vector<Value> parts;
    for (const std::string& name : split(attribute->as_string(), ",", -1, false)) {
      const Value path(name);
      parts.push_back(TRY((KeyRule{&path, case_sensitive}.key(item, budget))));
    }
    return Value::list(std::move(parts));
  }
};

// Sorts `order`, a list of positions in `keys`, by a stable merge sort. std::stable_sort is not usable, because a
// comparison may fail, and comparing with NaN is not a valid order.
Status sort_positions(const std::vector<Value>& keys, bool reverse, std::vector<std::size_t>& order, Budget& budget) {
  std::vector<std::size_t> merged(order.size());
  for (std::size_t width = 1; width < order.size(); width *= 2) {
    for (std::size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, order.size());
      const std::size_t end = std::min(begin + 2 * width, order.size());
      std::size_t left = begin;
      std::size_t right = middle;
      for (std::size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (left < middle && right < end) {
          const int way = TRY(compare(keys[order[left]], keys[order[right]], budget));
          take_right = reverse ? way < 0 : way > 0;
        }
        merged[out] = take_right ? order[right++] : order[left++];
      }
    }
    order.swap(merged);
  }
  return ok_status();
}

Result<std::vector<Value>> sorted(const std::vector<Value>& items, const std::vector<Value>& keys, bool reverse,
                                  Budget& budget) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  TRY(sort_positions(keys, reverse, order, budget));
  std::vector<Value> out;
  out.reserve(items.size());
  for (const std::size_t at : order) out.push_back(items[at]);
  return out;
}

Result<Value> sort_filter(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("sort", call, {"reverse", "case_sensitive", "attribute"}));
  const KeyRule rule{a.given(2) && !a[2].is_none() ? &a[2] : nullptr, a.truthy_or(1, false)};
  const ListPointer items = TRY(iterate(input, interpreter.budget()));
  std::vector<Value> keys;
  for (const Value& item : items->items) keys.push_back(TRY(rule.sort_key(item, interpreter.budget())));
  return Value::list(TRY(sorted(items->items, keys, a.truthy_or(0, false), interpreter.budget())));
}

Result<Value> dictsort(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("dictsort", call, {"case_sensitive", "by", "reverse"}));
  const std::string by = TRY(a.string_or(1, "key"));
  if (by != "key" && by != "value") return invalid_argument("dictsort: by '" + by + "'; accepted: key, value");
  if (!input.is_dict()) return invalid_argument("dictsort: a value of type '" + std::string(type_name(input)) + "'");
  const KeyRule rule{nullptr, a.truthy_or(0, false)};
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, value] : input.as_dict().items) {
    items.push_back(TRY(Value::list({key, value}, List::Kind::kTuple)));
    keys.push_back(TRY(rule.key(by == "key" ? key : value, interpreter.budget())));
  }
  return Value::list(TRY(sorted(items, keys, a.truthy_or(2, false), interpreter.budget())));
}

Result<Value> unique(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("unique", call, {"case_sensitive", "attribute"}));
  const KeyRule rule{a.given(1) && !a[1].is_none() ? &a[1] : nullptr, a.truthy_or(0, false)};
  const ListPointer items = TRY(iterate(input, interpreter.budget()));
  std::vector<Value> seen;
  std::vector<Value> out;
  for (const Value& item : items->items) {
    const Value key = TRY(rule.key(item, interpreter.budget()));
    TRY(check_hashable(key));
    bool found = false;
    for (std::size_t i = 0; i < seen.size() && !found; ++i) found = TRY(equal(seen[i], key, interpreter.budget()));
    if (found) continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return generator(std::move(out));
}

template <bool greatest>
Result<Value> extreme(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind(greatest ? "max" : "min", call, {"case_sensitive", "attribute"}));
  const KeyRule rule{a.given(1) && !a[1].is_none() ? &a[1] : nullptr, a.truthy_or(0, false)};
  const ListPointer items = TRY(iterate(input, interpreter.budget()));
  if (items->items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  Value best = items->items[0];
  Value best_key = TRY(rule.key(best, interpreter.budget()));
  for (const Value& item : items->items) {
    const Value key = TRY(rule.key(item, interpreter.budget()));
    const int way = TRY(compare(key, best_key, interpreter.budget()));
    if (greatest ? way <= 0 : way >= 0) continue;
    best = item;
    best_key = key;
  }
  return best;
}

Result<Value> length(Interpreter&, const Value& input, const CallArguments& call) {
  TRY(Arguments::bind("length", call, {}));
  if (input.is_undefined()) return Value(std::int64_t{0});
  if (input.is_string()) return Value(static_cast<std::int64_t>(count_characters(input.as_string())));
  if (input.is_dict()) return Value(static_cast<std::int64_t>(input.as_dict().items.size()));
  if (input.is_list() && !input.is_kind(List::Kind::kGenerator)) {
    return Value(static_cast<std::int64_t>(input.as_list().items.size()));
  }
  if (input.is_loop()) return Value(static_cast<std::int64_t>(input.as_loop()->items->items.size()));
  return invalid_argument("object of type '" + std::string(type_name(input)) + "' has no len()");
}

Result<Value> first(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  TRY(Arguments::bind("first", call, {}));
  const ListPointer items = TRY(iterate(input, interpreter.budget()));
  if (input.is_kind(List::Kind::kGenerator)) input.as_list().use = List::Use::kPartly;
  if (items->items.empty()) return Value::undefined("No first item, sequence was empty.");
  return items->items.front();
}

Result<Value> last(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  TRY(Arguments::bind("last", call, {}));
  if (input.is_kind(List::Kind::kGenerator)) return invalid_argument("'generator' object is not reversible; use |list");
  const ListPointer items = TRY(iterate(input, interpreter.budget()));
  if (items->items.empty()) return Value::undefined("No last item, sequence was empty.");
  return items->items.back();
}

Result<Value> list_filter(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  TRY(Arguments::bind("list", call, {}));
  const ListPointer items = TRY(iterate(input, interpreter.budget()));
  return Value::list(items->items);
}

Result<Value> items_filter(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  TRY(Arguments::bind("items", call, {}));
  if (!input.is_dict() && !input.is_undefined()) return invalid_argument("Can only get item pairs from a mapping.");
  std::vector<Value> out;
  if (input.is_dict()) {
    TRY(interpreter.budget().spend(static_cast<std::int64_t>(input.as_dict().items.size())));
    for (const auto& [key, value] : input.as_dict().items) {
      out.push_back(TRY(Value::list({key, value}, List::Kind::kTuple)));
    }
  }
  return generator(std::move(out));
}

Result<Value> reverse_filter(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  TRY(Arguments::bind("reverse", call, {}));
  const ListPointer items = TRY(iterate(input, interpreter.budget()));
  std::vector<Value> out(items->items.rbegin(), items->items.rend());
  if (!input.is_string()) return generator(std::move(out));
  std::string text;
  for (const Value& letter : out) text += letter.as_string();
  return Value(std::move(text));
}

Result<Value> join_filter(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("join", call, {"d", "attribute"}));
  Budget& budget = interpreter.budget();
  const std::string between = a.given(0) ? TRY(str(a[0], budget)) : "";
  const ListPointer items = TRY(iterate(input, budget));
  std::string out;
  for (const Value& item : items->items) {
    if (&item != &items->items.front()) out += between;
    const Value part = a.given(1) && !a[1].is_none() ? TRY(get_path(item, a[1], nullptr, budget)) : item;
    TRY(append_str(part, out, budget));
  }
  TRY(budget.spend_bytes(out.size()));
  return Value(std::move(out));
}

Result<Value> sum(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("sum", call, {"attribute", "start"}));
  Budget& budget = interpreter.budget();
  const ListPointer items = TRY(iterate(input, budget));
  Value out = a.given(1) ? a[1] : Value(std::int64_t{0});
  for (const Value& item : items->items) {
    const Value part = a.given(0) && !a[0].is_none() ? TRY(get_path(item, a[0], nullptr, budget)) : item;
    out = TRY(apply_binary(BinaryOperator::kAdd, out, part, budget));
  }
  return out;
}

// Returns the arguments after the first `count`.
CallArguments rest_of(const CallArguments& call, std::size_t count) {
  CallArguments out;
  out.positional.assign(call.positional.begin() + static_cast<std::ptrdiff_t>(count), call.positional.end());
  out.named = call.named;
  return out;
}

Result<std::string> name_argument(const CallArguments& call, std::size_t i, const char* what) {
  if (call.positional.size() <= i || !call.positional[i].is_string()) {
    return invalid_argument(std::string("accepted: the name of ") + what + " as a string");
  }
  return call.positional[i].as_string();
}

Result<Value> map_attribute(Interpreter& interpreter, const ListPointer& items, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("map", call, {"attribute", "default"}, 1));
  std::vector<Value> out;
  for (const Value& item : items->items) {
    out.push_back(TRY(get_path(item, a[0], a.given(1) && !a[1].is_none() ? &a[1] : nullptr, interpreter.budget())));
  }
  return generator(std::move(out));
}

Result<Value> map_filter(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  // A falsy input (also `none`) makes an empty sequence, even if the arguments are wrong. Jinja does the same.
  if (!truthy(input)) return generator({});
  const ListPointer items = TRY(iterate(input, interpreter.budget()));
  if (call.positional.empty() && !call.named.empty()) return map_attribute(interpreter, items, call);
  const std::string name = TRY(name_argument(call, 0, "a filter"));
  const Filter filter = find_filter(name);
  if (filter == nullptr) return invalid_argument("no filter named '" + name + "'; accepted: " + filter_names());
  const CallArguments rest = rest_of(call, 1);
  std::vector<Value> out;
  for (const Value& item : items->items) out.push_back(TRY(apply_filter(filter, interpreter, item, rest)));
  return generator(std::move(out));
}

// Implements select, reject, selectattr and rejectattr. They keep the items for which a test returns `wanted`.
template <bool wanted, bool by_attribute>
Result<Value> select(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  if (!truthy(input)) return generator({});  // as in map_filter
  const ListPointer items = TRY(iterate(input, interpreter.budget()));
  constexpr std::size_t kName = by_attribute ? 1 : 0;
  if (by_attribute && call.positional.empty()) return invalid_argument("accepted: the name of an attribute");
  Test test = nullptr;
  CallArguments rest;
  if (call.positional.size() > kName) {
    const std::string name = TRY(name_argument(call, kName, "a test"));
    test = find_test(name);
    if (test == nullptr) return invalid_argument("no test named '" + name + "'; accepted: " + test_names());
    rest = rest_of(call, kName + 1);
  }
  std::vector<Value> out;
  for (const Value& item : items->items) {
    TRY(interpreter.budget().spend());
    const Value value = by_attribute ? TRY(get_path(item, call.positional[0], nullptr, interpreter.budget())) : item;
    const bool passes = test == nullptr ? truthy(value) : TRY(test(interpreter, value, rest));
    if (passes == wanted) out.push_back(item);
  }
  return generator(std::move(out));
}

Result<Value> batch(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("batch", call, {"linecount", "fill_with"}, 1));
  const std::int64_t size = TRY(a.integer(0));
  if (size < 1) return invalid_argument("batch: accepted: a linecount of at least 1");
  const ListPointer items = TRY(iterate(input, interpreter.budget()));
  std::vector<Value> out;
  std::vector<Value> line;
  for (const Value& item : items->items) {
    line.push_back(item);
    if (static_cast<std::int64_t>(line.size()) == size) out.push_back(TRY(Value::list(std::exchange(line, {}))));
  }
  if (!line.empty()) {
    if (a.given(1) && !a[1].is_none()) {
      TRY(interpreter.budget().spend(size));
      line.resize(static_cast<std::size_t>(size), a[1]);
    }
    out.push_back(TRY(Value::list(std::move(line))));
  }
  return generator(std::move(out));
}

constexpr NamedFilter kSequenceFilters[] = {
    {"batch", batch},
    {"count", length},
    {"dictsort", dictsort},
    {"first", first},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last},
    {"length", length},
    {"list", list_filter},
    {"map", map_filter},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"reverse", reverse_filter},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"sort", sort_filter},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const NamedFilter> sequence_filters() { return kSequenceFilters; }

}  // namespace tessera::jinja
