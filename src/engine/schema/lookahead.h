// Lookaheads at the beginning of a pattern, which are conditions on the whole text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::schema {

struct PatternPart {
  std::string pattern;
  bool negated = false;  // no text matches it
};

// "^(?!a)(?=b)c" is "^c", with "^(?:b)" and without "^(?:a)": a text matches it where it is of all parts. Any other
// pattern is its only part, with its lookaheads, which parse_regex() refuses.
std::vector<PatternPart> split_lookaheads(std::string_view pattern);

}  // namespace tessera::schema
