#include "tessera/text/jinja/letter_case.h"

#include "tessera/text/jinja/python_string.h"
#include "tessera/text/unicode.h"

namespace tessera::jinja {
namespace {

// Calls `visit(code)` for each character.
template <class Visit>
void for_each_character(std::string_view text, Visit visit) {
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    visit(step.code);
    pos += step.length;
  }
}

// Appends the upper case of a character. The upper case may consist of several characters.
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

// Returns the text in lower case. A capital sigma becomes ς at the end of a word and σ elsewhere.
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

}  // namespace

std::string upper(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t code) { append_upper(out, code); });
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
  for_each_character(text, [&](char32_t code) {
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
  for_each_character(text, [&](char32_t code) {
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
  for_each_character(text, [&](char32_t code) {
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

}  // namespace tessera::jinja
