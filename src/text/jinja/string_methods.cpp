#include "tessera/text/jinja/string_methods.h"

#include <algorithm>

#include "tessera/text/jinja/arguments.h"
#include "tessera/text/jinja/interpreter.h"
#include "tessera/text/jinja/letter_case.h"
#include "tessera/text/jinja/python_string.h"
#include "tessera/text/unicode.h"

namespace tessera::jinja {
namespace {

Result<Value> make_strings(std::vector<std::string> parts, Interpreter& interpreter,
                           List::Kind kind = List::Kind::kList) {
  TRY(interpreter.budget().spend(static_cast<std::int64_t>(parts.size())));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string& part : parts) items.emplace_back(std::move(part));
  return Value::list(std::move(items), kind);
}

Result<Value> make_string(std::string text, Interpreter& interpreter) {
  TRY(interpreter.budget().spend_bytes(text.size()));
  return Value(std::move(text));
}

enum class Side { kBoth, kStart, kEnd };

template <Side side>
Result<Value> strip(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("strip", call, {"chars"}));
  std::string_view text = self.as_string();
  if (!a.given(0) || a[0].is_none()) {
    if (side != Side::kEnd) text = trim_start(text);
    if (side != Side::kStart) text = trim_end(text);
  } else {
    const std::string set = TRY(a.string(0));
    if (side != Side::kEnd) text = trim_start(text, set);
    if (side != Side::kStart) text = trim_end(text, set);
  }
  return make_string(std::string(text), interpreter);
}

template <bool from_right>
Result<Value> split_method(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("split", call, {"sep", "maxsplit"}));
  const std::string& text = self.as_string();
  // A split into more than `most` parts would exceed the budget.
  const std::int64_t most = interpreter.budget().steps_left() + 1;
  std::int64_t limit = TRY(a.integer_or(1, -1));
  if (limit < 0 || limit > most) limit = most;
  if (!a.given(0) || a[0].is_none()) return make_strings(split_space(text, limit, from_right), interpreter);
  const std::string separator = TRY(a.string(0));
  if (separator.empty()) return invalid_argument("split(): empty separator");
  return make_strings(split(text, separator, limit, from_right), interpreter);
}

Result<Value> splitlines(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("splitlines", call, {"keepends"}));
  const std::string& text = self.as_string();
  // Spends the budget before the lines are made. Counts every byte that may end a line or begin a line-ending
  // character, so that the count is at least the number of line ends.
  const auto lines = std::count_if(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte >= 0x0A && byte <= 0x1E) || byte == 0xC2 || byte == 0xE2;
  });
  TRY(interpreter.budget().spend(lines));
  return make_strings(split_lines(text, a.truthy_or(0, false)), interpreter);
}

template <bool at_end>
Result<Value> partition(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("partition", call, {"sep"}, 1));
  const std::string separator = TRY(a.string(0));
  if (separator.empty()) return invalid_argument("partition(): empty separator");
  const std::string& text = self.as_string();
  const std::size_t at = at_end ? find_last(text, separator) : find_first(text, separator);
  std::vector<std::string> parts = {text, "", ""};
  if (at != std::string::npos) {
    parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  } else if (at_end) {
    parts = {"", "", text};
  }
  return make_strings(std::move(parts), interpreter, List::Kind::kTuple);
}

template <std::string (*convert)(std::string_view)>
Result<Value> convert_case(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  TRY(Arguments::bind("the method", call, {}));
  return make_string(convert(self.as_string()), interpreter);
}

template <bool at_end>
Result<Value> starts_or_ends_with(Interpreter&, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind(at_end ? "endswith" : "startswith", call, {"prefix"}, 1));
  const std::string& text = self.as_string();
  const auto matches = [&](const Value& part) {
    return part.is_string() && (at_end ? text.ends_with(part.as_string()) : text.starts_with(part.as_string()));
  };
  if (a[0].is_kind(List::Kind::kTuple)) {
    const auto& parts = a[0].as_list().items;
    return Value(std::any_of(parts.begin(), parts.end(), matches));
  }
  TRY(a.string(0));
  return Value(matches(a[0]));
}

Result<Value> replace_method(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("replace", call, {"old", "new", "count"}, 2));
  const std::string from = TRY(a.string(0));
  const std::string to = TRY(a.string(1));
  const std::int64_t count = TRY(a.integer_or(2, -1));
  const std::string& text = self.as_string();
  // Spends the budget for the largest possible result before it is built.
  const std::size_t times = from.empty() ? text.size() + 1 : text.size() / from.size();
  if (to.size() > from.size()) TRY(interpreter.budget().spend_bytes(text.size() + times * (to.size() - from.size())));
  return make_string(replace(text, from, to, count), interpreter);
}

template <bool last, bool required>
Result<Value> find_text(Interpreter&, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("find", call, {"sub"}, 1));
  const std::string part = TRY(a.string(0));
  const std::string& text = self.as_string();
  const std::size_t at = last ? find_last(text, part) : find_first(text, part);
  if (at == std::string::npos) {
    if (required) return invalid_argument("index(): substring not found");
    return Value(std::int64_t{-1});
  }
  return Value(static_cast<std::int64_t>(count_characters(std::string_view(text).substr(0, at))));
}

Result<Value> count_text(Interpreter&, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("count", call, {"sub"}, 1));
  const std::string part = TRY(a.string(0));
  const std::string& text = self.as_string();
  if (part.empty()) return Value(static_cast<std::int64_t>(count_characters(text) + 1));
  std::int64_t count = 0;
  for (std::size_t at = 0; (at = find_first(text, part, at)) != std::string::npos; at += part.size()) ++count;
  return Value(count);
}

Result<Value> join(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("join", call, {"iterable"}, 1));
  const auto items = TRY(iterate(a[0], interpreter.budget()));
  std::string out;
  for (const Value& item : items->items) {
    if (!item.is_string()) {
      return invalid_argument("join(): expected str instance, " + std::string(type_name(item)) + " found");
    }
    if (&item != &items->items.front()) out += self.as_string();
    out += item.as_string();
    if (out.size() > interpreter.budget().max_bytes()) break;
  }
  return make_string(std::move(out), interpreter);
}

// Implements methods like str.isalpha(): true if the string is not empty and the predicate holds for every character.
template <bool (*predicate)(char32_t)>
Result<Value> all_characters(Interpreter&, const Value& self, const CallArguments& call) {
  TRY(Arguments::bind("the method", call, {}));
  const std::string& text = self.as_string();
  bool all = !text.empty();
  for (std::size_t pos = 0; pos < text.size() && all;) {
    const Utf8Step step = decode_utf8(text, pos);
    all = predicate(step.code);
    pos += step.length;
  }
  return Value(all);
}

bool is_alphanumeric(char32_t code) { return is_letter(code) || is_number(code); }
bool is_ascii_digit(char32_t code) { return code >= '0' && code <= '9'; }

// Implements str.isupper() or str.islower(): true if there is a cased character, and no character of the other case.
template <bool upper_case>
Result<Value> is_case(Interpreter&, const Value& self, const CallArguments& call) {
  TRY(Arguments::bind("the method", call, {}));
  const std::string& text = self.as_string();
  bool some = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    if (upper_case ? is_lower(step.code) : is_upper(step.code)) return Value(false);
    some = some || (upper_case ? is_upper(step.code) : is_lower(step.code));
    pos += step.length;
  }
  return Value(some);
}

// Pads `text` to `width` characters with `fill`. left_of() returns how many of the missing characters go to the left.
Result<Value> pad(Interpreter& interpreter, const std::string& text, std::int64_t width, const std::string& fill,
                  std::int64_t (*left_of)(std::int64_t missing, std::int64_t width)) {
  const auto missing = std::max<std::int64_t>(0, width - static_cast<std::int64_t>(count_characters(text)));
  TRY(interpreter.budget().spend_bytes(static_cast<std::size_t>(missing)));
  const std::int64_t left = left_of(missing, width);
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (std::int64_t i = left; i < missing; ++i) out += fill;
  return make_string(std::move(out), interpreter);
}

template <int where>
Result<Value> justify(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("the method", call, {"width", "fillchar"}, 1));
  const std::string fill = TRY(a.string_or(1, " "));
  if (count_characters(fill) != 1) return invalid_argument("the fill character must be exactly one character long");
  const std::int64_t width = TRY(a.integer(0));
  return pad(interpreter, self.as_string(), width, fill, [](std::int64_t missing, std::int64_t wanted) {
    if (where < 0) return std::int64_t{0};
    return where > 0 ? missing : missing / 2 + (missing & wanted & 1);
  });
}

Result<Value> zfill(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("zfill", call, {"width"}, 1));
  const std::string& text = self.as_string();
  const bool sign = text.starts_with('-') || text.starts_with('+');
  const std::int64_t width = TRY(a.integer(0)) - (sign ? 1 : 0);
  const Value padded = TRY(pad(interpreter, text.substr(sign ? 1 : 0), width, "0",
                               [](std::int64_t missing, std::int64_t) { return missing; }));
  return make_string((sign ? text.substr(0, 1) : "") + padded.as_string(), interpreter);
}

template <bool at_end>
Result<Value> remove_affix(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("the method", call, {"affix"}, 1));
  const std::string affix = TRY(a.string(0));
  std::string_view text = self.as_string();
  if (!at_end && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (at_end && text.ends_with(affix)) text.remove_suffix(affix.size());
  return make_string(std::string(text), interpreter);
}

constexpr NamedMethod kStringMethods[] = {
    {"strip", strip<Side::kBoth>},
    {"lstrip", strip<Side::kStart>},
    {"rstrip", strip<Side::kEnd>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"upper", convert_case<upper>},
    {"lower", convert_case<lower>},
    {"title", convert_case<title>},
    {"capitalize", convert_case<capitalize>},
    {"swapcase", convert_case<swap_case>},
    {"startswith", starts_or_ends_with<false>},
    {"endswith", starts_or_ends_with<true>},
    {"replace", replace_method},
    {"find", find_text<false, false>},
    {"rfind", find_text<true, false>},
    {"index", find_text<false, true>},
    {"rindex", find_text<true, true>},
    {"count", count_text},
    {"join", join},
    {"isdigit", all_characters<is_ascii_digit>},
    {"isalpha", all_characters<is_letter>},
    {"isalnum", all_characters<is_alphanumeric>},
    {"isspace", all_characters<is_space>},
    {"isupper", is_case<true>},
    {"islower", is_case<false>},
    {"center", justify<0>},
    {"ljust", justify<-1>},
    {"rjust", justify<1>},
    {"zfill", zfill},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
};

}  // namespace

std::span<const NamedMethod> string_methods() { return kStringMethods; }

}  // namespace tessera::jinja
