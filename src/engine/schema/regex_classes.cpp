#include "tessera/engine/schema/regex_classes.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "tessera/text/unicode.h"

namespace tessera::schema {
namespace {

// Returns the set of all Unicode characters for which `holds` returns true.
CharSet where(bool (*holds)(char32_t)) {
  std::vector<CharRange> ranges;
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (!holds(code)) continue;
    if (!ranges.empty() && ranges.back().last + 1 == code) {
      ranges.back().last = code;
    } else {
      ranges.push_back({code, code});
    }
  }
  return CharSet(std::move(ranges));
}

bool may_be_word(char32_t code) { return code == '_' || is_word(code) || is_number(code) || is_letter(code); }
bool may_be_space(char32_t code) { return is_whitespace(code) || (code >= 0x1C && code <= 0x1F) || code == 0xFEFF; }

}  // namespace

ClassReading any_but_line_ends() {
  return {CharSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).complement(), CharSet::of('\n').complement()};
}

ClassReading escape_class(char letter) {
  // The sets are computed once; C++ makes the first use safe for several threads.
  static const CharSet digits = where(is_number);
  static const CharSet words = where(may_be_word);
  static const CharSet spaces = where(may_be_space);
  switch (letter) {
    case 'd': return {CharSet({{'0', '9'}}), digits};
    case 'D': return escape_class('d').complement();
    case 'w': return {CharSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}), words};
    case 'W': return escape_class('w').complement();
    case 's': return {CharSet::any_of("\t\n\v\f\r "), spaces};
    default: return escape_class('s').complement();
  }
}

Result<ClassReading> property_class(std::string_view name) {
  static const CharSet letters = where(is_letter);
  static const CharSet marks = where(is_mark);
  static const CharSet numbers = where(is_number);
  if (name == "L" || name == "Letter") return same_reading(letters);
  if (name == "M" || name == "Mark") return same_reading(marks);
  if (name == "N" || name == "Number") return same_reading(numbers);
  return unimplemented(fmt::format("the class \\p{{{}}} is not supported; accepted: L, M, N", name));
}

}  // namespace tessera::schema
