#include "tessera/text/jinja/literals.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "tessera/text/jinja/letter_case.h"
#include "tessera/text/jinja/python_string.h"
#include "tessera/text/unicode.h"

namespace tessera::jinja {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Result<std::string> unescape(std::string_view literal) {
  std::string out;
  for (std::size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      out += literal[i];
      continue;
    }
    const char c = literal[++i];
    constexpr std::string_view kNames = "abfnrtv\\'\"";
    constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t at = kNames.find(c); at != std::string_view::npos) {
      out += kValues[at];
    } else if (c == '\n') {
      // A backslash before a newline continues the line. The backslash and the newline are dropped.
    } else if (c >= '0' && c <= '7') {
      char32_t code = 0;
      const std::size_t end = std::min(i + 3, literal.size());
      for (; i < end && literal[i] >= '0' && literal[i] <= '7'; ++i)
        code = code * 8 + static_cast<char32_t>(literal[i] - '0');
      --i;
      append_utf8(out, code);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t count = c == 'x' ? 2 : (c == 'u' ? 4 : 8);
      char32_t code = 0;
      for (std::size_t k = 1; k <= count; ++k) {
        const int digit = i + k < literal.size() ? hex_value(literal[i + k]) : -1;
        if (digit < 0)
          return invalid_argument(std::string("\\") + c + " needs " + std::to_string(count) + " hexadecimal digits");
        code = code * 16 + static_cast<char32_t>(digit);
      }
      if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
        return unimplemented(std::string("\\") + c + " escape that is no Unicode character");
      }
      append_utf8(out, code);
      i += count;
    } else if (c == 'N') {
      return unimplemented("\\N{…} escapes are not supported; write the character");
    } else {
      out += '\\';
      out += c;
    }
  }
  return out;
}

Result<std::optional<std::int64_t>> parse_integer(std::string_view text, int base) {
  using Out = std::optional<std::int64_t>;
  text = trim_end(trim_start(text));
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto prefixed = [&](char lower_case, int wanted) {
    return (base == wanted || base == 0) && text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == lower_case;
  };
  for (const auto& [letter, wanted] : {std::pair{'x', 16}, std::pair{'o', 8}, std::pair{'b', 2}}) {
    if (!prefixed(letter, wanted)) continue;
    text.remove_prefix(2);
    base = wanted;
    break;
  }
  if (base == 0) base = 10;
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && text[i - 1] != '_' && text[i + 1] != '_';
    if (text[i] == '_' && between) continue;
    digits += text[i];
  }
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error == std::errc::invalid_argument || end != digits.data() + digits.size()) return Out();
  const auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (error == std::errc::result_out_of_range || value > limit) {
    return unimplemented("integers beyond 64 bits are not supported");
  }
  const auto magnitude = static_cast<std::int64_t>(value);
  return Out(negative ? -magnitude : magnitude);
}

std::optional<double> parse_float(std::string_view text) {
  text = trim_end(trim_start(text));
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  // std::from_chars would accept a second sign, and does not read all of Python's spellings of "infinity". Both cases
  // are therefore handled here.
  if (text.starts_with('-') || text.starts_with('+')) return std::nullopt;
  const std::string low = lower(text);
  double value = 0;
  if (low == "inf" || low == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (low == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end != text.data() + text.size() || error == std::errc::invalid_argument || low.starts_with("nan") ||
        low.starts_with("inf")) {
      return std::nullopt;
    }
  }
  return negative ? -value : value;
}

}  // namespace tessera::jinja
