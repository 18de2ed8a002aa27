// The character classes that regular expressions can name.
#pragma once

#include <string_view>

#include "tessera/base/status.h"
#include "tessera/engine/schema/char_set.h"

namespace tessera::schema {

// The characters that every dialect puts into a class (narrow), and the characters that at least one dialect puts into
// the class (wide); see regex.h.
struct ClassReading {
  CharSet narrow{};
  CharSet wide{};

  ClassReading complement() const { return {wide.complement(), narrow.complement()}; }
};

inline ClassReading same_reading(const CharSet& set) { return {set, set}; }
ClassReading any_but_line_ends();
// Returns the class of \d \D \s \S \w or \W. `letter` is the letter after the backslash.
ClassReading escape_class(char letter);
// Returns the class \p{name} for the Unicode categories L, M and N and for their long names. Returns unimplemented for
// other names.
Result<ClassReading> property_class(std::string_view name);

}  // namespace tessera::schema
