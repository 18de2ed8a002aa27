#include "tessera/text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "tessera/text/jinja/arguments.h"
#include "tessera/text/jinja/interpreter.h"
#include "tessera/text/jinja/methods.h"
#include "tessera/text/jinja/percent_format.h"
#include "tessera/text/jinja/print.h"
#include "tessera/text/jinja/python_string.h"
#include "tessera/text/unicode.h"

namespace tessera::jinja {
namespace {

std::string_view symbol(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd: return "+";
    case BinaryOperator::kSubtract: return "-";
    case BinaryOperator::kMultiply: return "*";
    case BinaryOperator::kDivide: return "/";
    case BinaryOperator::kFloorDivide: return "//";
    case BinaryOperator::kModulo: return "%";
    case BinaryOperator::kPower: return "**";
  }
  return "?";
}

Status overflow() { return unimplemented("the result is an integer beyond 64 bits"); }

Result<Value> power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  std::int64_t out = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(out, base, &out)) return overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return overflow();
  }
  return Value(out);
}

Result<Value> integer_arithmetic(BinaryOperator op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  switch (op) {
    case BinaryOperator::kAdd: return __builtin_add_overflow(a, b, &out) ? Result<Value>(overflow()) : Value(out);
    case BinaryOperator::kSubtract: return __builtin_sub_overflow(a, b, &out) ? Result<Value>(overflow()) : Value(out);
    case BinaryOperator::kMultiply: return __builtin_mul_overflow(a, b, &out) ? Result<Value>(overflow()) : Value(out);
    case BinaryOperator::kPower:
      if (a == 0 && b < 0) return invalid_argument("0 to a negative power");
      return power(a, b);
    case BinaryOperator::kDivide:
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo: break;
  }
  if (b == 0) return invalid_argument("division by zero");
  if (op == BinaryOperator::kDivide) return Value(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {  // the only divisor with which a / b can overflow
    if (op == BinaryOperator::kModulo) return Value(std::int64_t{0});
    return __builtin_sub_overflow(std::int64_t{0}, a, &out) ? Result<Value>(overflow()) : Value(out);
  }
  // Python rounds the quotient down, so the remainder has the divisor's sign.
  const bool inexact = a % b != 0 && ((a % b < 0) != (b < 0));
  if (op == BinaryOperator::kFloorDivide) return Value(a / b - (inexact ? 1 : 0));
  return Value(a % b + (inexact ? b : 0));
}

Result<Value> float_arithmetic(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::kAdd: return Value(a + b);
    case BinaryOperator::kSubtract: return Value(a - b);
    case BinaryOperator::kMultiply: return Value(a * b);
    case BinaryOperator::kPower: {
      const double out = std::pow(a, b);
      if (std::isnan(out) && !std::isnan(a) && !std::isnan(b)) return unimplemented("the result is a complex number");
      return Value(out);
    }
    case BinaryOperator::kDivide:
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo: break;
  }
  if (b == 0.0) return invalid_argument("division by zero");
  if (op == BinaryOperator::kDivide) return Value(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0.0 && ((rest < 0) != (b < 0))) rest += b;
  if (op == BinaryOperator::kModulo) return Value(rest == 0.0 ? std::copysign(0.0, b) : rest);
  return Value(std::round((a - rest) / b));
}

// Computes "ab" * 3 or [1] * 3.
Result<Value> repeat(const Value& value, std::int64_t times, Budget& budget) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(0, times));
  if (value.is_string()) {
    const std::string& text = value.as_string();
    if (!text.empty() && count > budget.max_bytes() / text.size()) return budget.spend_bytes(budget.max_bytes() + 1);
    TRY(budget.spend_bytes(count * text.size()));
    std::string out;
    if (!text.empty()) {
      for (std::size_t i = 0; i < count; ++i) out += text;
    }
    return Value::text_like(value, std::move(out));
  }
  const auto& items = value.as_list().items;
  std::vector<Value> out;
  for (std::size_t i = 0; i < count && !items.empty(); ++i) {
    TRY(budget.spend(static_cast<std::int64_t>(items.size())));
    out.insert(out.end(), items.begin(), items.end());
  }
  return Value::list(std::move(out), value.as_list().kind);
}

bool is_sequence(const Value& value) {
  return value.is_string() || value.is_kind(List::Kind::kList) || value.is_kind(List::Kind::kTuple);
}

Result<Value> add_lists(const Value& left, const Value& right, Budget& budget) {
  std::vector<Value> items = left.as_list().items;
  const auto& more = right.as_list().items;
  items.insert(items.end(), more.begin(), more.end());
  TRY(budget.spend(static_cast<std::int64_t>(items.size())));
  return Value::list(std::move(items), left.as_list().kind);
}

// Adds two texts. If at least one is marked safe, the result is safe, and a text that is not marked safe is escaped.
Result<Value> add_texts(const Value& left, const Value& right, Budget& budget) {
  const bool safe = left.is_safe() || right.is_safe();
  const auto part = [&](const Value& text) {
    return safe && !text.is_safe() ? escape_html(text.as_string()) : text.as_string();
  };
  TRY(budget.spend_bytes(left.as_string().size() + right.as_string().size()));
  std::string out = part(left) + part(right);
  return safe ? Value::safe_text(std::move(out)) : Value(std::move(out));
}

// Clamps a position in a Python slice to [low, high]. A negative position counts from the end.
std::int64_t clamp_index(std::int64_t index, std::int64_t size, std::int64_t low, std::int64_t high) {
  if (index < 0) index += size;
  return std::clamp(index, low, high);
}

Result<std::optional<std::int64_t>> slice_index(const Value& value) {
  if (value.is_none()) return std::optional<std::int64_t>();
  if (value.is_undefined()) return invalid_argument(value.why_undefined());
  if (!value.is_int() && !value.is_bool()) {
    return invalid_argument("a slice index of type '" + std::string(type_name(value)) + "'; accepted: integers, none");
  }
  // The bound is far outside any text, and so small that adding a text's size to it does not overflow.
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  return std::optional<std::int64_t>(std::clamp(value.as_int(), -kFar, kFar));
}

std::string missing_attribute(const Value& value, std::string_view name) {
  return "'" + std::string(type_name(value)) + " object' has no attribute '" + std::string(name) + "'";
}

Result<Value> loop_attribute(const Value& value, std::string_view name) {
  const std::shared_ptr<Loop>& loop = value.as_loop();
  const auto size = static_cast<std::int64_t>(loop->items->items.size());
  const auto index = static_cast<std::int64_t>(loop->index);
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "depth") return Value(std::int64_t{loop->depth});
  if (name == "depth0") return Value(std::int64_t{loop->depth} - 1);
  if (name == "previtem") {
    if (index == 0) return Value::undefined("there is no previous item");
    return loop->items->items[loop->index - 1];
  }
  if (name == "nextitem") {
    if (index + 1 == size) return Value::undefined("there is no next item");
    return loop->items->items[loop->index + 1];
  }
  if (name != "cycle" && name != "changed") return Value::undefined(missing_attribute(value, name));
  auto function = std::make_shared<Function>();
  function->name = "loop." + std::string(name);
  if (name == "cycle") {
    function->call = [loop](Interpreter&, const CallArguments& call) -> Result<Value> {
      if (call.positional.empty()) return invalid_argument("loop.cycle(): no items for cycling given");
      return call.positional[loop->index % call.positional.size()];
    };
  } else {
    function->call = [loop](Interpreter& interpreter, const CallArguments& call) -> Result<Value> {
      if (!loop->running) return unimplemented("loop.changed() behind the end of its loop is not supported");
      bool same = loop->has_changed && loop->changed.size() == call.positional.size();
      for (std::size_t i = 0; same && i < call.positional.size(); ++i) {
        same = TRY(equal(loop->changed[i], call.positional[i], interpreter.budget()));
      }
      loop->changed = call.positional;
      loop->has_changed = true;
      return Value(!same);
    };
  }
  return Value(std::shared_ptr<const Function>(std::move(function)));
}

// Returns an attribute in Python's sense: a member of a namespace, an attribute of `loop`, a function's name, or a
// method. Members of a dict do not count.
Result<std::optional<Value>> own_attribute(const Value& value, std::string_view name) {
  using Out = std::optional<Value>;
  if (name.starts_with("__")) {
    return invalid_argument("access to attribute '" + std::string(name) + "' of '" + std::string(type_name(value)) +
                            "' object is unsafe");
  }
  if (value.is_namespace()) {
    for (const auto& [member, item] : value.as_namespace().members) {
      if (member == name) return Out(item);
    }
    return Out();
  }
  if (value.is_loop()) return Out(TRY(loop_attribute(value, name)));
  if (value.is_function() && name == "name") return Out(Value(value.as_function().name));
  return find_method(value, name);
}

Result<std::optional<Value>> element(const Value& value, const Value& key, Budget& budget) {
  using Out = std::optional<Value>;
  if (value.is_dict()) {
    const Value* found = TRY(find_key(value.as_dict(), key, budget));
    return found == nullptr ? Out() : Out(*found);
  }
  const bool list =
      value.is_kind(List::Kind::kList) || value.is_kind(List::Kind::kTuple) || value.is_kind(List::Kind::kRange);
  if ((!list && !value.is_string()) || !(key.is_int() || key.is_bool())) return Out();
  TRY(budget.spend_bytes(value.is_string() ? value.as_string().size() : 0));
  const auto size =
      static_cast<std::int64_t>(value.is_string() ? count_characters(value.as_string()) : value.as_list().items.size());
  std::int64_t index = key.as_int();
  if (index < -size || index >= size) return Out();
  if (index < 0) index += size;
  if (!value.is_string()) return Out(value.as_list().items[static_cast<std::size_t>(index)]);
  const std::string& text = value.as_string();
  const std::size_t at = byte_offset(text, static_cast<std::size_t>(index));
  return Out(Value::text_like(value, text.substr(at, decode_utf8(text, at).length)));
}

// Returns the characters [from, to) of a text.
Result<Value> slice_text(const Value& value, std::optional<std::int64_t> from, std::optional<std::int64_t> to,
                         Budget& budget) {
  const std::string& text = value.as_string();
  TRY(budget.spend_bytes(text.size()));
  const auto size = static_cast<std::int64_t>(count_characters(text));
  const std::int64_t begin = from ? clamp_index(*from, size, 0, size) : 0;
  const std::int64_t end = to ? clamp_index(*to, size, 0, size) : size;
  if (begin >= end) return Value::text_like(value, "");
  const std::size_t first = byte_offset(text, static_cast<std::size_t>(begin));
  const std::string_view rest = std::string_view(text).substr(first);
  return Value::text_like(value, std::string(rest.substr(0, byte_offset(rest, static_cast<std::size_t>(end - begin)))));
}

}  // namespace

Result<Value> apply_binary(BinaryOperator op, const Value& left, const Value& right, Budget& budget) {
  if (left.is_undefined()) return invalid_argument(left.why_undefined());
  if (op == BinaryOperator::kModulo && left.is_string()) {
    if (left.is_safe()) return unimplemented("% of a text marked safe is not supported");
    const bool tuple = right.is_kind(List::Kind::kTuple);
    return Value(
        TRY(format_percent(left.as_string(), tuple ? right.as_list().items : std::vector<Value>{right}, budget)));
  }
  if (right.is_undefined()) return invalid_argument(right.why_undefined());
  if (left.is_number() && right.is_number()) {
    if (left.is_float() || right.is_float()) return float_arithmetic(op, left.as_double(), right.as_double());
    return integer_arithmetic(op, left.as_int(), right.as_int());
  }
  if (op == BinaryOperator::kAdd) {
    if (left.is_string() && right.is_string()) return add_texts(left, right, budget);
    const bool lists = left.is_kind(List::Kind::kList) && right.is_kind(List::Kind::kList);
    const bool tuples = left.is_kind(List::Kind::kTuple) && right.is_kind(List::Kind::kTuple);
    if (lists || tuples) return add_lists(left, right, budget);
  }
  const auto integer = [](const Value& v) { return v.is_int() || v.is_bool(); };
  if (op == BinaryOperator::kMultiply && is_sequence(left) && integer(right))
    return repeat(left, right.as_int(), budget);
  if (op == BinaryOperator::kMultiply && integer(left) && is_sequence(right))
    return repeat(right, left.as_int(), budget);
  return invalid_argument("unsupported operand types for " + std::string(symbol(op)) + ": '" +
                          std::string(type_name(left)) + "' and '" + std::string(type_name(right)) + "'");
}

Result<Value> negate(const Value& value) {
  if (value.is_undefined()) return invalid_argument(value.why_undefined());
  if (value.is_float()) return Value(-value.as_double());
  if (value.is_number()) return integer_arithmetic(BinaryOperator::kSubtract, 0, value.as_int());
  return invalid_argument("bad operand type for unary -: '" + std::string(type_name(value)) + "'");
}

Result<bool> apply_compare(CompareOperator op, const Value& left, const Value& right, Budget& budget) {
  switch (op) {
    case CompareOperator::kEqual: return equal(left, right, budget);
    case CompareOperator::kNotEqual: return !TRY(equal(left, right, budget));
    case CompareOperator::kLess: return TRY(compare(left, right, budget)) < 0;
    case CompareOperator::kLessEqual: return TRY(compare(left, right, budget)) <= 0;
    case CompareOperator::kGreater: return TRY(compare(left, right, budget)) > 0;
    case CompareOperator::kGreaterEqual: return TRY(compare(left, right, budget)) >= 0;
    case CompareOperator::kIn: return contains(right, left, budget);
    case CompareOperator::kNotIn: return !TRY(contains(right, left, budget));
  }
  return internal_error("unknown comparison");
}

Result<Value> concatenate(const std::vector<Value>& pieces, Budget& budget) {
  std::string out;
  for (const Value& piece : pieces) TRY(append_str(piece, out, budget));
  TRY(budget.spend_bytes(out.size()));
  return Value(std::move(out));
}

Result<Value> get_attribute(const Value& value, std::string_view name, Budget& budget) {
  if (value.is_undefined()) return invalid_argument(value.why_undefined());
  if (std::optional<Value> own = TRY(own_attribute(value, name))) return *std::move(own);
  if (std::optional<Value> found = TRY(element(value, Value(std::string(name)), budget))) return *std::move(found);
  return Value::undefined(missing_attribute(value, name));
}

Result<Value> get_item(const Value& value, const Value& key, Budget& budget) {
  if (value.is_undefined()) return invalid_argument(value.why_undefined());
  if (std::optional<Value> found = TRY(element(value, key, budget))) return *std::move(found);
  if (!key.is_string()) {
    std::string shown;
    TRY(append_repr(key, shown, budget));
    return Value::undefined(std::string(type_name(value)) + " object has no element " + shown);
  }
  if (std::optional<Value> own = TRY(own_attribute(value, key.as_string()))) return *std::move(own);
  return Value::undefined(missing_attribute(value, key.as_string()));
}

Result<Value> get_slice(const Value& value, const Value& start, const Value& stop, const Value& step, Budget& budget) {
  if (value.is_undefined()) return invalid_argument(value.why_undefined());
  if (!is_sequence(value) && !value.is_kind(List::Kind::kRange)) {
    return invalid_argument("'" + std::string(type_name(value)) + "' object cannot be sliced");
  }
  const auto from = TRY(slice_index(start));
  const auto to = TRY(slice_index(stop));
  std::int64_t by = TRY(slice_index(step)).value_or(1);
  if (by == 0) return invalid_argument("slice step cannot be zero");
  if (value.is_string() && by == 1) return slice_text(value, from, to, budget);
  TRY(budget.spend(value.is_string() ? static_cast<std::int64_t>(value.as_string().size()) : 0));
  const std::vector<Value> letters = value.is_string() ? characters(value.as_string()) : std::vector<Value>();
  const std::vector<Value>& items = value.is_string() ? letters : value.as_list().items;
  const auto size = static_cast<std::int64_t>(items.size());
  by = std::clamp(by, -size - 1, size + 1);  // a larger step has the same effect, but i + by could overflow
  const std::int64_t low = by > 0 ? 0 : -1;
  const std::int64_t high = by > 0 ? size : size - 1;
  const std::int64_t begin = from ? clamp_index(*from, size, low, high) : (by > 0 ? 0 : size - 1);
  const std::int64_t end = to ? clamp_index(*to, size, low, high) : (by > 0 ? size : -1);
  std::vector<Value> out;
  for (std::int64_t i = begin; by > 0 ? i < end : i > end; i += by) out.push_back(items[static_cast<std::size_t>(i)]);
  TRY(budget.spend(static_cast<std::int64_t>(out.size())));
  if (!value.is_string()) return Value::list(std::move(out), value.as_list().kind);
  std::string text;
  for (const Value& letter : out) text += letter.as_string();
  return Value::text_like(value, std::move(text));
}

Result<Value> get_path(const Value& value, const Value& path, const Value* otherwise, Budget& budget) {
  std::vector<Value> steps = {path};
  if (path.is_string()) {
    steps.clear();
    for (const std::string& part : split(path.as_string(), ".", -1, false)) {
      const bool number =
          !part.empty() && part.find_first_not_of("0123456789") == std::string::npos && part.size() < 18;
      steps.push_back(number ? Value(std::int64_t{std::stoll(part)}) : Value(part));
    }
  }
  Value at = value;
  for (const Value& step : steps) {
    at = TRY(get_item(at, step, budget));
    if (at.is_undefined() && otherwise != nullptr) at = *otherwise;
  }
  return at;
}

}  // namespace tessera::jinja
