#include "tessera/text/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/text/jinja/arguments.h"
#include "tessera/text/jinja/interpreter.h"
#include "tessera/text/jinja/letter_case.h"
#include "tessera/text/jinja/literals.h"
#include "tessera/text/jinja/methods.h"
#include "tessera/text/jinja/percent_format.h"
#include "tessera/text/jinja/print.h"
#include "tessera/text/jinja/python_string.h"
#include "tessera/text/unicode.h"

namespace tessera::jinja {
namespace {

Result<Value> make_string(std::string text, Interpreter& interpreter) {
  TRY(interpreter.budget().spend_bytes(text.size()));
  return Value(std::move(text));
}

template <std::string (*convert)(std::string_view), bool keeps_safe>
Result<Value> convert_text(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  TRY(Arguments::bind("the filter", call, {}));
  std::string text = convert(TRY(str(input, interpreter.budget())));
  TRY(interpreter.budget().spend_bytes(text.size()));
  return keeps_safe ? Value::text_like(input, std::move(text)) : Value(std::move(text));
}

Status refuse_safe(const Value& input, std::string_view filter) {
  if (!input.is_safe()) return ok_status();
  return unimplemented(std::string(filter) + " of a text marked safe is not supported");
}

// Applies a filter by calling the string method `name` of str(input).
Result<Value> call_method(Interpreter& interpreter, const Value& input, std::string_view name,
                          const CallArguments& call) {
  const Value self(TRY(str(input, interpreter.budget())));
  const std::optional<Value> method = TRY(find_method(self, name));
  if (!method) return internal_error("no string method for the filter " + std::string(name));
  return interpreter.call(*method, call);
}

Result<Value> trim(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Value text = TRY(call_method(interpreter, input, "strip", call));
  return Value::text_like(input, text.as_string());
}

Result<Value> replace_filter(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("replace", call, {"old", "new", "count"}, 2));
  CallArguments texts;
  for (std::size_t i = 0; i < 2; ++i) texts.positional.emplace_back(TRY(str(a[i], interpreter.budget())));
  if (a.given(2)) texts.positional.push_back(a[2]);
  return call_method(interpreter, input, "replace", texts);
}

Result<Value> center(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  TRY(refuse_safe(input, "center"));
  const Arguments a = TRY(Arguments::bind("center", call, {"width"}));
  const std::int64_t width = TRY(a.integer_or(0, 80));
  return call_method(interpreter, input, "center", {{Value(width)}, {}});
}

Result<Value> string_filter(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  TRY(Arguments::bind("string", call, {}));
  if (input.is_string()) return input;
  return Value(TRY(str(input, interpreter.budget())));
}

Result<Value> safe(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  TRY(Arguments::bind("safe", call, {}));
  return Value::safe_text(TRY(str(input, interpreter.budget())));
}

template <bool again>
Result<Value> escape(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  TRY(Arguments::bind("escape", call, {}));
  if (input.is_safe() && !again) return input;
  std::string text = escape_html(TRY(str(input, interpreter.budget())));
  TRY(interpreter.budget().spend_bytes(text.size()));
  return Value::safe_text(std::move(text));
}

Result<Value> indent(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("indent", call, {"width", "first", "blank"}));
  std::string indention = "    ";
  if (a.given(0) && a[0].is_string()) {
    indention = a[0].as_string();
  } else if (a.given(0)) {
    const std::int64_t width = std::max<std::int64_t>(0, TRY(a.integer(0)));
    TRY(interpreter.budget().spend_bytes(static_cast<std::size_t>(width)));
    indention = std::string(static_cast<std::size_t>(width), ' ');
  }
  if (!input.is_string()) return invalid_argument("indent: a value of type '" + std::string(type_name(input)) + "'");
  const bool first = a.truthy_or(1, false);
  const bool blank = a.truthy_or(2, false);
  std::string out;
  bool at_first = true;
  for (const std::string& line : split_lines(input.as_string() + "\n", false)) {
    if (!at_first) out += '\n';
    if (at_first ? first : (blank || !line.empty())) out += indention;
    out += line;
    at_first = false;
    if (out.size() > interpreter.budget().max_bytes()) break;
  }
  TRY(interpreter.budget().spend_bytes(out.size()));
  return Value::text_like(input, std::move(out));
}

Result<Value> truncate(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("truncate", call, {"length", "killwords", "end", "leeway"}));
  TRY(refuse_safe(input, "truncate"));
  if (!input.is_string()) return unimplemented("truncate of a value of type '" + std::string(type_name(input)) + "'");
  const std::int64_t length = TRY(a.integer_or(0, 255));
  const std::string end = TRY(a.string_or(2, "..."));
  const std::int64_t leeway = TRY(a.integer_or(3, 5));
  const auto end_length = static_cast<std::int64_t>(count_characters(end));
  if (length < end_length || leeway < 0) {
    return invalid_argument("truncate: accepted: a length of at least that of its end, a leeway of at least 0");
  }
  const std::string& text = input.as_string();
  if (static_cast<std::int64_t>(count_characters(text)) - leeway <= length) return Value(text);
  std::string kept = text.substr(0, byte_offset(text, static_cast<std::size_t>(length - end_length)));
  if (!a.truthy_or(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return make_string(kept + end, interpreter);
}

Result<Value> word_count(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  TRY(Arguments::bind("wordcount", call, {}));
  const std::string text = TRY(str(input, interpreter.budget()));
  std::int64_t count = 0;
  bool in_word = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    const bool word = step.code == '_' || is_letter(step.code) || is_number(step.code);
    if (word && !in_word) ++count;
    in_word = word;
    pos += step.length;
  }
  return Value(count);
}

Result<Value> format_filter(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  TRY(refuse_safe(input, "format"));
  if (!call.named.empty()) return unimplemented("format: keyword arguments are not supported");
  return make_string(TRY(format_percent(TRY(str(input, interpreter.budget())), call.positional, interpreter.budget())),
                     interpreter);
}

Result<Value> default_filter(Interpreter&, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("default", call, {"default_value", "boolean"}));
  const bool replaced = input.is_undefined() || (a.truthy_or(1, false) && !truthy(input));
  if (!replaced) return input;
  return a.given(0) ? a[0] : Value("");
}

Result<Value> absolute(Interpreter&, const Value& input, const CallArguments& call) {
  TRY(Arguments::bind("abs", call, {}));
  if (input.is_undefined()) return invalid_argument(input.why_undefined());
  if (input.is_float()) return Value(std::abs(input.as_double()));
  if (!input.is_number()) return invalid_argument("abs: a value of type '" + std::string(type_name(input)) + "'");
  if (input.as_int() == INT64_MIN) return unimplemented("the result is an integer beyond 64 bits");
  return Value(std::abs(input.as_int()));
}

// Returns int(value) of a float; nothing for NaN and infinities.
Result<std::optional<Value>> float_to_int(double value) {
  using Out = std::optional<Value>;
  if (!std::isfinite(value)) return Out();
  if (std::abs(value) >= 9.2e18) return unimplemented("the result is an integer beyond 64 bits");
  return Out(Value(static_cast<std::int64_t>(value)));
}

Result<Value> int_filter(Interpreter&, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("int", call, {"default", "base"}));
  const Value otherwise = a.given(0) ? a[0] : Value(std::int64_t{0});
  const std::int64_t base = TRY(a.integer_or(1, 10));
  if (base != 0 && (base < 2 || base > 36)) return invalid_argument("int: base must be 0 or from 2 to 36");
  if (input.is_undefined()) return invalid_argument(input.why_undefined());
  if (input.is_float()) return TRY(float_to_int(input.as_double())).value_or(otherwise);
  if (input.is_number()) return Value(input.as_int());
  if (!input.is_string()) return otherwise;
  if (const auto value = TRY(parse_integer(input.as_string(), static_cast<int>(base)))) return Value(*value);
  if (const auto value = parse_float(input.as_string())) return TRY(float_to_int(*value)).value_or(otherwise);
  return otherwise;
}

Result<Value> float_filter(Interpreter&, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("float", call, {"default"}));
  if (input.is_undefined()) return invalid_argument(input.why_undefined());
  if (input.is_number()) return Value(input.as_double());
  if (input.is_string()) {
    if (const auto value = parse_float(input.as_string())) return Value(*value);
  }
  return a.given(0) ? a[0] : Value(0.0);
}

Result<Value> round_filter(Interpreter&, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("round", call, {"precision", "method"}));
  const std::int64_t precision = TRY(a.integer_or(0, 0));
  const std::string method = TRY(a.string_or(1, "common"));
  if (method != "common" && method != "ceil" && method != "floor") {
    return invalid_argument("round: method '" + method + "'; accepted: common, ceil, floor");
  }
  if (!input.is_number()) return invalid_argument("round: a value of type '" + std::string(type_name(input)) + "'");
  if (precision < 0 || precision > 300) return unimplemented("round: accepted: a precision from 0 to 300");
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = input.as_double() * scale;
    return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (!input.is_float()) return Value(input.as_int());
  if (!std::isfinite(input.as_double())) return input;
  // Rounds the exact decimal expansion, as Python does.
  return Value(parse_float(fmt::format("{:.{}f}", input.as_double(), precision)).value_or(input.as_double()));
}

Result<Value> to_json(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("tojson", call, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = a.truthy_or(0, false);
  style.sort_keys = a.truthy_or(3, false);
  if (a.given(1) && !a[1].is_none()) {
    if (a[1].is_string()) {
      style.indent = a[1].as_string();
    } else {
      const std::int64_t width = std::max<std::int64_t>(0, TRY(a.integer(1)));
      if (width > 100) return resource_exhausted("tojson: accepted: an indent of at most 100");
      style.indent = std::string(static_cast<std::size_t>(width), ' ');
    }
    style.item_separator = ",";
  }
  if (a.given(2) && !a[2].is_none()) {
    const bool pair = a[2].is_list() && a[2].as_list().items.size() == 2 && a[2].as_list().items[0].is_string() &&
                      a[2].as_list().items[1].is_string();
    if (!pair) return invalid_argument("tojson: accepted: separators of two strings");
    style.item_separator = a[2].as_list().items[0].as_string();
    style.key_separator = a[2].as_list().items[1].as_string();
  }
  std::string out;
  TRY(append_json(input, style, out, interpreter.budget()));
  return make_string(std::move(out), interpreter);
}

constexpr NamedFilter kTextFilters[] = {
    {"abs", absolute},
    {"capitalize", convert_text<capitalize, true>},
    {"center", center},
    {"d", default_filter},
    {"default", default_filter},
    {"e", escape<false>},
    {"escape", escape<false>},
    {"float", float_filter},
    {"forceescape", escape<true>},
    {"format", format_filter},
    {"indent", indent},
    {"int", int_filter},
    {"lower", convert_text<lower, true>},
    {"replace", replace_filter},
    {"round", round_filter},
    {"safe", safe},
    {"string", string_filter},
    {"title", convert_text<title_words, false>},
    {"tojson", to_json},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", convert_text<upper, true>},
    {"wordcount", word_count},
};

}  // namespace

std::span<const NamedFilter> text_filters() { return kTextFilters; }

Filter find_filter(std::string_view name) {
  for (const auto& list : {text_filters(), sequence_filters()}) {
    for (const NamedFilter& entry : list) {
      if (entry.name == name) return entry.filter;
    }
  }
  return nullptr;
}

Result<Value> apply_filter(Filter filter, Interpreter& interpreter, const Value& input, const CallArguments& call) {
  TRY(spend_texts(call, interpreter.budget()));
  if (input.is_string()) TRY(interpreter.budget().spend_bytes(input.as_string().size()));
  return filter(interpreter, input, call);
}

std::string filter_names() {
  std::string out;
  for (const auto& list : {text_filters(), sequence_filters()}) {
    for (const NamedFilter& entry : list) {
      if (!out.empty()) out += ", ";
      out += entry.name;
    }
  }
  return out;
}

}  // namespace tessera::jinja
