#include "tessera/text/jinja/percent_format.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/text/jinja/print.h"
#include "tessera/text/unicode.h"

namespace tessera::jinja {
namespace {

struct Spec {
  bool left = false;
  bool zero = false;
  bool plus = false;
  bool space = false;
  bool alternate = false;
  int width = 0;
  int precision = -1;
  char type = 's';
};

constexpr int kMaxField = 10'000;

Result<int> read_count(std::string_view format, std::size_t& pos) {
  int out = 0;
  for (; pos < format.size() && format[pos] >= '0' && format[pos] <= '9'; ++pos) {
    out = out * 10 + (format[pos] - '0');
    if (out > kMaxField) return resource_exhausted("a width or precision above " + std::to_string(kMaxField));
  }
  return out;
}

// Reads a conversion after its '%': the flags, the width, the precision and the type.
Result<Spec> read_spec(std::string_view format, std::size_t& pos) {
  Spec spec;
  for (; pos < format.size(); ++pos) {
    if (format[pos] == '-') {
      spec.left = true;
    } else if (format[pos] == '0') {
      spec.zero = true;
    } else if (format[pos] == '+') {
      spec.plus = true;
    } else if (format[pos] == ' ') {
      spec.space = true;
    } else if (format[pos] == '#') {
      spec.alternate = true;
    } else {
      break;
    }
  }
  spec.width = TRY(read_count(format, pos));
  if (pos < format.size() && format[pos] == '.') {
    ++pos;
    spec.precision = TRY(read_count(format, pos));
  }
  if (pos >= format.size()) return invalid_argument("incomplete format '%' at the end of a format string");
  spec.type = format[pos++];
  return spec;
}

std::string sign_of(bool negative, const Spec& spec) {
  return negative ? "-" : (spec.plus ? "+" : (spec.space ? " " : ""));
}

std::string pad(std::string sign, std::string body, const Spec& spec, bool number) {
  const std::size_t length = sign.size() + count_characters(body);
  const auto width = static_cast<std::size_t>(spec.width);
  const std::string fill =
      length < width ? std::string(width - length, spec.zero && number && !spec.left ? '0' : ' ') : "";
  if (spec.left) return sign + body + fill;
  return spec.zero && number ? sign + fill + body : fill + sign + body;
}

Result<std::string> format_integer(const Value& value, const Spec& spec) {
  if (!value.is_number() || (value.is_float() && spec.type != 'd' && spec.type != 'i' && spec.type != 'u')) {
    return invalid_argument(std::string("%") + spec.type + " format: a number is required, not " +
                            std::string(type_name(value)));
  }
  if (value.is_float() && !(std::abs(value.as_double()) < 9.2e18))
    return invalid_argument("a float out of range for %d");
  const std::int64_t number = value.is_float() ? static_cast<std::int64_t>(value.as_double()) : value.as_int();
  const std::uint64_t magnitude =
      number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  std::string digits;
  std::string prefix;
  switch (spec.type) {
    case 'x':
      digits = fmt::format("{:x}", magnitude);
      prefix = "0x";
      break;
    case 'X':
      digits = fmt::format("{:X}", magnitude);
      prefix = "0X";
      break;
    case 'o':
      digits = fmt::format("{:o}", magnitude);
      prefix = "0o";
      break;
    default: digits = std::to_string(magnitude);
  }
  if (spec.precision > 0 && digits.size() < static_cast<std::size_t>(spec.precision)) {
    digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
  }
  return pad(sign_of(number < 0, spec) + (spec.alternate ? prefix : ""), digits, spec, true);
}

Result<std::string> format_float(const Value& value, const Spec& spec) {
  if (!value.is_number()) {
    return invalid_argument("must be real number, not " + std::string(type_name(value)));
  }
  if (spec.alternate) return unimplemented("the flag # of float formats is not supported");
  const double number = value.as_double();
  const std::string body = fmt::format(fmt::runtime("{:.{}" + std::string(1, spec.type) + "}"), std::abs(number),
                                       spec.precision < 0 ? 6 : spec.precision);
  return pad(sign_of(std::signbit(number), spec), body, spec, std::isfinite(number));
}

Result<std::string> format_value(const Value& value, const Spec& spec, Budget& budget) {
  switch (spec.type) {
    case 's':
    case 'r': {
      std::string text;
      TRY(spec.type == 's' ? append_str(value, text, budget) : append_repr(value, text, budget));
      if (spec.precision >= 0) {
        std::size_t end = 0;
        for (int i = 0; i < spec.precision && end < text.size(); ++i) end += decode_utf8(text, end).length;
        text.resize(end);
      }
      return pad("", std::move(text), spec, false);
    }
    case 'c': {
      std::string text;
      if (value.is_int() && value.as_int() >= 0 && value.as_int() <= 0x10FFFF) {
        append_utf8(text, static_cast<char32_t>(value.as_int()));
      } else if (value.is_string() && count_characters(value.as_string()) == 1) {
        text = value.as_string();
      } else {
        return invalid_argument("%c requires int or char");
      }
      return pad("", std::move(text), spec, false);
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': return format_integer(value, spec);
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G': return format_float(value, spec);
    case '(': return unimplemented("%(name) formats are not supported");
    case '*': return unimplemented("* in formats is not supported");
    default: return invalid_argument(std::string("unsupported format character '") + spec.type + "'");
  }
}

}  // namespace

Result<std::string> format_percent(std::string_view format, const std::vector<Value>& arguments, Budget& budget) {
  std::string out;
  std::size_t used = 0;
  for (std::size_t pos = 0; pos < format.size();) {
    if (format[pos] != '%') {
      out += format[pos++];
      continue;
    }
    ++pos;
    const Spec spec = TRY(read_spec(format, pos));
    if (spec.type == '%') {
      out += '%';
      continue;
    }
    if (spec.type != '(' && spec.type != '*' && used >= arguments.size()) {
      return invalid_argument("not enough arguments for format string");
    }
    out += TRY(format_value(used < arguments.size() ? arguments[used] : Value(), spec, budget));
    ++used;
    TRY(budget.spend_bytes(out.size()));
  }
  // Python accepts a single argument that is a mapping or a list even if the format does not use it, because "%(key)s"
  // could look it up.
  const bool lenient = arguments.size() == 1 && (arguments[0].is_dict() || arguments[0].is_kind(List::Kind::kList) ||
                                                 arguments[0].is_kind(List::Kind::kRange));
  if (used < arguments.size() && !lenient)
    return invalid_argument("not all arguments converted during string formatting");
  return out;
}

}  // namespace tessera::jinja
