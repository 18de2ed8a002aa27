// The character classes that a regular expression names.
#pragma once

#include <string_view>

#include "tessera/base/status.h"
#include "tessera/engine/schema/char_set.h"

namespace tessera::schema {

// What every dialect takes for a class, and what any of them does (regex.h).
struct ClassReading {
  CharSet narrow{};
  CharSet wide{};

  ClassReading complement() const { return {wide.complement(), narrow.complement()}; }
};

inline ClassReading same_reading(const CharSet& set) { return {set, set}; }
ClassReading any_but_line_ends();
// `letter` of \d \D \s \S \w \W.
ClassReading escape_class(char letter);
// \p{name}: L, M, N and their long names; unimplemented for others.
Result<ClassReading> property_class(std::string_view name);

}  // namespace tessera::schema
