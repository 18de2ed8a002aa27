#include "tessera/text/jinja/python_string.h"

#include <algorithm>
#include <cstring>

#include "tessera/text/unicode.h"

namespace tessera::jinja {
namespace {

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

void reverse_if(std::vector<std::string>& parts, bool from_right) {
  if (from_right) std::reverse(parts.begin(), parts.end());
}

// Returns a predicate that is true for the characters of `set`.
auto one_of(std::string_view set) {
  std::vector<char32_t> codes;
  for (std::size_t pos = 0; pos < set.size();) {
    const Utf8Step step = decode_utf8(set, pos);
    codes.push_back(step.code);
    pos += step.length;
  }
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

std::size_t find_first(std::string_view text, std::string_view part, std::size_t from) {
  // In the worst case, std::string_view::find() takes time proportional to the product of both sizes. glibc's memmem()
  // takes time proportional to their sum. Short parts do not use memmem(), because a sanitizer checks the whole text at
  // each call.
  constexpr std::size_t kShort = 16;
  if (part.size() <= kShort || from > text.size()) return text.find(part, from);
  const void* at = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (at == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
}

std::size_t find_last(std::string_view text, std::string_view part) {
  if (part.empty()) return text.size();
  // The Knuth-Morris-Pratt algorithm from the right. If the last i bytes of `part` matched and the next byte does not,
  // then the last borders[i] bytes of `part` still match.
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
    // If `from` is empty, Python puts `to` before every character and at the end.
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

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t pos = 0;
  while (index > 0 && pos < text.size()) {
    pos += decode_utf8(text, pos).length;
    --index;
  }
  return pos;
}

}  // namespace tessera::jinja
