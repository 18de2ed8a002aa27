// Splits off the lookaheads at the beginning of a pattern, which are conditions on the whole text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::schema {

struct PatternPart {
  std::string pattern;
  bool negated = false;  // texts must not match `pattern`
};

// Splits "^(?!a)(?=b)c" into "^c", "^(?:b)", and the negated "^(?:a)"; a text matches the pattern if it satisfies
// all parts. Any other pattern is returned as its only part, including lookaheads, which parse_regex() refuses.
std::vector<PatternPart> split_lookaheads(std::string_view pattern);

}  // namespace tessera::schema
