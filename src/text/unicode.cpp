#include "tessera/text/unicode.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace tessera {
namespace {

utf8proc_category_t category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

}  // namespace

Utf8Step decode_utf8(std::string_view text, std::size_t pos) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(pos);
  if (first < 0x80) return {Utf8Step::Kind::kCharacter, 1, first};

  std::size_t length = 0;
  // The second byte's range is narrower than 80..BF if the first byte would otherwise allow an overlong form, a
  // surrogate or a value above U+10FFFF (Unicode 15, table 3-7).
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return {Utf8Step::Kind::kIllFormed, 1, 0xFFFD};
  }

  char32_t code = first & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (pos + i == text.size()) return {Utf8Step::Kind::kIncomplete, i, 0xFFFD};
    const unsigned char next = byte(pos + i);
    if (next < low || next > high) return {Utf8Step::Kind::kIllFormed, i, 0xFFFD};
    low = 0x80;
    high = 0xBF;
    code = (code << 6) | (next & 0x3Fu);
  }
  return {Utf8Step::Kind::kCharacter, length, code};
}

void append_utf8(std::string& out, char32_t code) {
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) code = 0xFFFD;
  const auto put = [&](char32_t bits) { out += static_cast<char>(static_cast<unsigned char>(bits)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::size_t find_invalid_utf8(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080;
  for (std::size_t pos = 0; pos < text.size();) {
    std::uint64_t eight = kHighBits;
    if (text.size() - pos >= sizeof eight) std::memcpy(&eight, text.data() + pos, sizeof eight);
    if ((eight & kHighBits) == 0) {  // eight characters of ASCII
      pos += sizeof eight;
      continue;
    }
    const Utf8Step step = decode_utf8(text, pos);
    if (step.kind != Utf8Step::Kind::kCharacter) return pos;
    pos += step.length;
  }
  return std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    if (step.kind == Utf8Step::Kind::kCharacter) {
      out += text.substr(pos, step.length);
    } else {
      out += kReplacementCharacter;
    }
    pos += step.length;
  }
  return out;
}

std::size_t complete_utf8_prefix(std::string_view text) {
  // An incomplete character has at most three bytes, so only the last three can start one.
  const std::size_t from = text.size() > 3 ? text.size() - 3 : 0;
  for (std::size_t pos = from; pos < text.size(); ++pos) {
    if (decode_utf8(text, pos).kind == Utf8Step::Kind::kIncomplete) return pos;
  }
  return text.size();
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t pos = 0; pos < text.size(); ++count) pos += decode_utf8(text, pos).length;
  return count;
}

std::size_t grapheme_length(std::string_view text, std::size_t pos) {
  utf8proc_int32_t state = 0;
  Utf8Step last = decode_utf8(text, pos);
  std::size_t end = pos + last.length;
  while (end < text.size()) {
    const Utf8Step next = decode_utf8(text, end);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state)) {
      break;
    }
    end += next.length;
    last = next;
  }
  return end - pos;
}

Result<std::string> normalize(std::string_view text, NormalForm form) {
  int options = UTF8PROC_STABLE;
  switch (form) {
    case NormalForm::kNfc: options |= UTF8PROC_COMPOSE; break;
    case NormalForm::kNfd: options |= UTF8PROC_DECOMPOSE; break;
    case NormalForm::kNfkc: options |= UTF8PROC_COMPOSE | UTF8PROC_COMPAT; break;
    case NormalForm::kNfkd: options |= UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT; break;
  }
  utf8proc_uint8_t* raw = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &raw, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(raw, &std::free);
  if (length < 0) {
    return resource_exhausted("Unicode normalisation of " + std::to_string(text.size()) +
                              " bytes: " + utf8proc_errmsg(length));
  }
  return std::string(reinterpret_cast<const char*>(raw), static_cast<std::size_t>(length));
}

bool is_whitespace(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

bool is_number(char32_t code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool is_letter(char32_t code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool is_mark(char32_t code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
           (code >= '{' && code <= '~');
  }
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool is_word(char32_t code) {
  const auto c = category(code);
  if ((c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC) return true;
  // Alphabetic symbols (circled and squared letters) and the two joiners are also word characters.
  return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
         (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189) || code == 0x200C ||
         code == 0x200D;
}

bool is_unprintable(char32_t code) {
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_CN || (c >= UTF8PROC_CATEGORY_ZS && c <= UTF8PROC_CATEGORY_CO && code != ' ');
}

bool is_upper(char32_t code) { return to_lower(code) != code && category(code) != UTF8PROC_CATEGORY_LT; }

bool is_lower(char32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LL || (to_upper(code) != code && category(code) != UTF8PROC_CATEGORY_LT);
}

char32_t to_upper(char32_t code) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}
char32_t to_lower(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}
char32_t to_title(char32_t code) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code)));
}

}  // namespace tessera
