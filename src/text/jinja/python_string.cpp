#include "tessera/text/jinja/python_string.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "tessera/text/unicode.h"

namespace tessera::jinja {
namespace {

// Calls `visit(code, bytes)` for each character.
template <class Visit>
void for_each_character(std::string_view text, Visit visit) {
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    visit(step.code, text.substr(pos, step.length));
    pos += step.length;
  }
}

template <class Predicate>
std::string_view trim_start_if(std::string_view text, Predicate predicate) {
  while (!text.empty()) {
    const Utf8Step step = decode_utf8(text, 0);
    if (!predicate(step.code, text.substr(0, step.length))) break;
    text.remove_prefix(step.length);
  }
  return text;
}

template <class Predicate>
std::string_view trim_end_if(std::string_view text, Predicate predicate) {
  while (!text.empty()) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!predicate(decode_utf8(text, begin).code, text.substr(begin))) break;
    text = text.substr(0, begin);
  }
  return text;
}

// The few characters whose upper case is more than one character and that occur in running text.
void append_upper(std::string& out, char32_t code) {
  if (code == 0xDF) {
    out += "SS";
  } else {
    append_utf8(out, to_upper(code));
  }
}

void append_title(std::string& out, char32_t code) {
  if (code == 0xDF) {
    out += "Ss";
  } else {
    append_utf8(out, to_title(code));
  }
}

void append_lower(std::string& out, char32_t code) {
  if (code == 0x130) {
    out += "i\xCC\x87";
  } else {
    append_utf8(out, to_lower(code));
  }
}

bool is_cased(char32_t code) { return to_lower(code) != code || to_upper(code) != code || is_lower(code); }

// Capital sigma at the end of a word has another lower case.
std::string lower_with_sigma(std::string_view text) {
  std::string out;
  bool after_cased = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    pos += step.length;
    if (step.code == 0x3A3) {
      const bool before_cased = pos < text.size() && is_cased(decode_utf8(text, pos).code);
      append_utf8(out, after_cased && !before_cased ? 0x3C2 : 0x3C3);
    } else {
      append_lower(out, step.code);
    }
    after_cased = is_cased(step.code);
  }
  return out;
}

void reverse_if(std::vector<std::string>& parts, bool from_right) {
  if (from_right) std::reverse(parts.begin(), parts.end());
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Whether a character is one of those of `set`.
auto one_of(std::string_view set) {
  std::vector<char32_t> codes;
  for_each_character(set, [&](char32_t code, std::string_view) { codes.push_back(code); });
  std::sort(codes.begin(), codes.end());
  return [codes = std::move(codes)](char32_t code, std::string_view) {
    return std::binary_search(codes.begin(), codes.end(), code);
  };
}

}  // namespace

bool is_space(char32_t code) { return is_whitespace(code) || (code >= 0x1C && code <= 0x1F); }

std::string_view trim_start(std::string_view text) {
  return trim_start_if(text, [](char32_t code, std::string_view) { return is_space(code); });
}
std::string_view trim_end(std::string_view text) {
  return trim_end_if(text, [](char32_t code, std::string_view) { return is_space(code); });
}
std::string_view trim_start(std::string_view text, std::string_view set) { return trim_start_if(text, one_of(set)); }
std::string_view trim_end(std::string_view text, std::string_view set) { return trim_end_if(text, one_of(set)); }

std::string upper(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t code, std::string_view) { append_upper(out, code); });
  return out;
}

std::string lower(std::string_view text) { return lower_with_sigma(text); }

std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  const Utf8Step first = decode_utf8(text, 0);
  std::string out;
  append_title(out, first.code);
  return out + lower(text.substr(first.length));
}

std::string swap_case(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t code, std::string_view) {
    if (is_upper(code)) {
      append_lower(out, code);
    } else {
      append_upper(out, code);
    }
  });
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for_each_character(text, [&](char32_t code, std::string_view) {
    if (in_word) {
      append_lower(out, code);
    } else {
      append_title(out, code);
    }
    in_word = is_cased(code);
  });
  return out;
}

std::string title_words(std::string_view text) {
  std::string out;
  bool at_word = true;
  for_each_character(text, [&](char32_t code, std::string_view) {
    const bool separator = is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
    if (at_word) {
      append_upper(out, code);
    } else {
      append_lower(out, code);
    }
    at_word = separator;
  });
  return out;
}

std::size_t find_first(std::string_view text, std::string_view part, std::size_t from) {
  // std::string_view's search takes the product of both sizes at worst, glibc's their sum. (Not for short parts: a
  // sanitizer looks at all of the text at each of its calls.)
  constexpr std::size_t kShort = 16;
  if (part.size() <= kShort || from > text.size()) return text.find(part, from);
  const void* at = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (at == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
}

std::size_t find_last(std::string_view text, std::string_view part) {
  if (part.empty()) return text.size();
  // Knuth, Morris and Pratt from the right: borders[i] is how much of the end of `part` still matches when
  // its last i bytes did and the next one does not.
  const auto from_end = [](std::string_view bytes, std::size_t i) { return bytes[bytes.size() - 1 - i]; };
  std::vector<std::size_t> borders(part.size() + 1, 0);
  for (std::size_t i = 1, matched = 0; i < part.size(); ++i) {
    while (matched > 0 && from_end(part, i) != from_end(part, matched)) matched = borders[matched];
    if (from_end(part, i) == from_end(part, matched)) ++matched;
    borders[i + 1] = matched;
  }
  for (std::size_t i = 0, matched = 0; i < text.size(); ++i) {
    while (matched > 0 && from_end(text, i) != from_end(part, matched)) matched = borders[matched];
    if (from_end(text, i) == from_end(part, matched)) ++matched;
    if (matched == part.size()) return text.size() - 1 - i;
  }
  return std::string_view::npos;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to, std::int64_t count) {
  std::string out;
  std::size_t done = 0;
  if (from.empty()) {
    // Python puts `to` before every character and at the end.
    while (count != 0) {
      out += to;
      if (count > 0) --count;
      if (done == text.size()) return out;
      const std::size_t length = decode_utf8(text, done).length;
      out += text.substr(done, length);
      done += length;
    }
    return out.append(text.substr(done));
  }
  for (std::size_t at; count != 0 && (at = find_first(text, from, done)) != std::string_view::npos;) {
    out.append(text, done, at - done);
    out += to;
    done = at + from.size();
    if (count > 0) --count;
  }
  return out.append(text.substr(done));
}

std::vector<std::string> split_space(std::string_view text, std::int64_t limit, bool from_right) {
  std::vector<std::string> out;
  text = from_right ? trim_end(text) : trim_start(text);
  while (!text.empty()) {
    if (limit == 0) {
      out.emplace_back(text);
      break;
    }
    std::string_view word = text;
    if (from_right) {
      const std::string_view rest = trim_end_if(text, [](char32_t code, std::string_view) { return !is_space(code); });
      word = text.substr(rest.size());
      text = trim_end(rest);
    } else {
      const std::string_view rest =
          trim_start_if(text, [](char32_t code, std::string_view) { return !is_space(code); });
      word = text.substr(0, text.size() - rest.size());
      text = trim_start(rest);
    }
    out.emplace_back(word);
    if (limit > 0) --limit;
  }
  reverse_if(out, from_right);
  return out;
}

std::vector<std::string> split(std::string_view text, std::string_view separator, std::int64_t limit, bool from_right) {
  std::vector<std::string> out;
  for (; limit != 0; limit -= limit > 0 ? 1 : 0) {
    const std::size_t at = from_right ? find_last(text, separator) : find_first(text, separator);
    if (at == std::string_view::npos) break;
    out.emplace_back(from_right ? text.substr(at + separator.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + separator.size());
  }
  out.emplace_back(text);
  reverse_if(out, from_right);
  return out;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    const char32_t c = step.code;
    std::size_t end = pos + step.length;
    const bool breaks = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (c == '\r' && end < text.size() && text[end] == '\n') ++end;
    if (breaks) {
      out.emplace_back(text.substr(begin, (keep_ends ? end : pos) - begin));
      begin = end;
    }
    pos = end;
  }
  if (begin < text.size()) out.emplace_back(text.substr(begin));
  return out;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

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
      // a line continued
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

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t pos = 0;
  while (index > 0 && pos < text.size()) {
    pos += decode_utf8(text, pos).length;
    --index;
  }
  return pos;
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
  // from_chars takes a second sign and does not know Python's "infinity" in every case.
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
