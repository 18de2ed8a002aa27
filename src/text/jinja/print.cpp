#include "tessera/text/jinja/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tessera/text/unicode.h"

namespace tessera::jinja {
namespace {

// Spends the budget for the text that was appended after the offset `before`. A small value can refer to one large part
// many times, so the text of the value can be very long. The budget then ends the printing early.
Status spend_growth(const std::string& out, std::size_t before, Budget& budget) {
  if (out.size() > budget.max_bytes()) return budget.spend_bytes(out.size());
  return budget.spend(1 + static_cast<std::int64_t>((out.size() - before) / Budget::kBytesOfStep));
}

void append_quoted(std::string_view text, std::string& out) {
  const bool double_quotes = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  out += quote;
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    const char32_t c = step.code;
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (!is_unprintable(c)) {
      out += text.substr(pos, step.length);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<unsigned>(c));
    }
    pos += step.length;
  }
  out += quote;
}

Status append_items(const std::vector<Value>& items, std::string& out, Budget& budget) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out += ", ";
    first = false;
    TRY(append_repr(item, out, budget));
  }
  return ok_status();
}

Status append_list(const List& list, std::string& out, Budget& budget) {
  switch (list.kind) {
    case List::Kind::kGenerator: return unimplemented("printing a generator; use |list or |join");
    case List::Kind::kTuple:
      out += '(';
      TRY(append_items(list.items, out, budget));
      out += list.items.size() == 1 ? ",)" : ")";
      return ok_status();
    case List::Kind::kRange: return unimplemented("printing a range; use |list");
    case List::Kind::kKeys: out += "dict_keys("; break;
    case List::Kind::kValues: out += "dict_values("; break;
    case List::Kind::kItems: out += "dict_items("; break;
    case List::Kind::kList: break;
  }
  out += '[';
  TRY(append_items(list.items, out, budget));
  out += list.kind == List::Kind::kList ? "]" : "])";
  return ok_status();
}

Status append_dict(const Dict& dict, std::string& out, Budget& budget) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.items) {
    if (!first) out += ", ";
    first = false;
    TRY(append_repr(key, out, budget));
    out += ": ";
    TRY(append_repr(value, out, budget));
  }
  out += '}';
  return ok_status();
}

void append_json_string(std::string_view text, bool ensure_ascii, std::string& out) {
  out += '"';
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    const char32_t c = step.code;
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (c >= 0x10000 && ensure_ascii) {
          const auto rest = static_cast<unsigned>(c - 0x10000);
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
        } else if (c < 0x20 || (c >= 0x7F && ensure_ascii)) {
          if (c == 0x7F) {
            out += '\x7f';
          } else {
            out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
          }
        } else {
          out += text.substr(pos, step.length);
        }
    }
    pos += step.length;
  }
  out += '"';
}

// Returns a dict's key as the string that json.dumps makes of it: 1 becomes "1", True becomes "true", and None becomes
// "null".
std::string json_key(const Value& key) {
  if (key.is_string()) return key.as_string();
  if (key.is_bool()) return key.as_bool() ? "true" : "false";
  if (key.is_none()) return "null";
  return key.is_float() ? float_repr(key.as_double()) : std::to_string(key.as_int());
}

class JsonPrinter {
 public:
  JsonPrinter(const JsonStyle& style, std::string& out, Budget& budget) : style_(style), out_(out), budget_(budget) {}

  Status print(const Value& value, int level) {
    const std::size_t before = out_.size();
    if (value.is_string()) {
      append_json_string(value.as_string(), style_.ensure_ascii, out_);
    } else if (value.is_bool()) {
      out_ += value.as_bool() ? "true" : "false";
    } else if (value.is_int()) {
      out_ += std::to_string(value.as_int());
    } else if (value.is_float()) {
      const double number = value.as_double();
      out_ += std::isnan(number) ? "NaN"
                                 : (std::isinf(number) ? (number > 0 ? "Infinity" : "-Infinity") : float_repr(number));
    } else if (value.is_none()) {
      out_ += "null";
    } else if (value.is_kind(List::Kind::kList) || value.is_kind(List::Kind::kTuple)) {
      return print_list(value.as_list(), level);
    } else if (value.is_dict()) {
      return print_dict(value.as_dict(), level);
    } else {
      return invalid_argument("Object of type " + std::string(type_name(value)) + " is not JSON serializable");
    }
    return spend_growth(out_, before, budget_);
  }

 private:
  void newline(int level) {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += *style_.indent;
  }
  Status print_list(const List& list, int level) {
    out_ += '[';
    bool first = true;
    for (const Value& item : list.items) {
      if (!first) out_ += style_.item_separator;
      first = false;
      newline(level + 1);
      TRY(print(item, level + 1));
    }
    if (!first) newline(level);
    out_ += ']';
    return spend_growth(out_, out_.size(), budget_);
  }
  Status print_dict(const Dict& dict, int level) {
    std::vector<std::pair<Value, Value>> items = dict.items;
    if (style_.sort_keys) {
      // Only string keys are sorted. Python, too, refuses to sort keys of different types.
      for (const auto& item : items) {
        if (!item.first.is_string()) return unimplemented("sort_keys with keys that are not strings");
      }
      std::stable_sort(items.begin(), items.end(),
                       [](const auto& a, const auto& b) { return a.first.as_string() < b.first.as_string(); });
    }
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : items) {
      if (!first) out_ += style_.item_separator;
      first = false;
      newline(level + 1);
      append_json_string(json_key(key), style_.ensure_ascii, out_);
      out_ += style_.key_separator;
      TRY(print(value, level + 1));
    }
    if (!first) newline(level);
    out_ += '}';
    return spend_growth(out_, out_.size(), budget_);
  }

  const JsonStyle& style_;
  std::string& out_;
  Budget& budget_;
};

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  // Writes the value as "d.ddde±xx" with the fewest digits. The exponent decides whether the result keeps this form.
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string text(buffer, end);
  const std::size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;
  std::string digits = text.substr(0, e);
  const bool negative = digits.starts_with('-');
  if (negative) digits.erase(0, 1);
  if (digits.size() > 1) digits.erase(1, 1);  // removes the decimal point
  std::string out;
  if (exponent < 0) {
    out = "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  } else {
    const auto whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() < whole) digits.append(whole - digits.size(), '0');
    out = digits.substr(0, whole) + "." + (digits.size() > whole ? digits.substr(whole) : "0");
  }
  return negative ? "-" + out : out;
}

Status append_str(const Value& value, std::string& out, Budget& budget) {
  if (value.is_undefined()) return ok_status();
  if (!value.is_string()) return append_repr(value, out, budget);
  const std::size_t before = out.size();
  out += value.as_string();
  return spend_growth(out, before, budget);
}

Result<std::string> str(const Value& value, Budget& budget) {
  std::string out;
  TRY(append_str(value, out, budget));
  return out;
}

Status append_repr(const Value& value, std::string& out, Budget& budget) {
  const std::size_t before = out.size();
  if (value.is_list()) {
    TRY(append_list(value.as_list(), out, budget));
    return spend_growth(out, out.size(), budget);
  }
  if (value.is_dict()) {
    TRY(append_dict(value.as_dict(), out, budget));
    return spend_growth(out, out.size(), budget);
  }
  if (value.is_safe()) {
    return unimplemented("printing a container of texts marked safe");
  } else if (value.is_string()) {
    append_quoted(value.as_string(), out);
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "True" : "False";
  } else if (value.is_int()) {
    out += std::to_string(value.as_int());
  } else if (value.is_float()) {
    out += float_repr(value.as_double());
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else {
    return unimplemented("printing a value of type '" + std::string(type_name(value)) + "'");
  }
  return spend_growth(out, before, budget);
}

Status append_json(const Value& value, const JsonStyle& style, std::string& out, Budget& budget) {
  return JsonPrinter(style, out, budget).print(value, 0);
}

}  // namespace tessera::jinja
