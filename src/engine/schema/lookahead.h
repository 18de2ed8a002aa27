// Splits off the lookaheads at the beginning of a pattern. These lookaheads are conditions on the whole text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::schema {

struct PatternPart {
  std::string pattern;
  bool negated = false;  // texts must not match `pattern`
};

// Splits the lookaheads after a leading "^" into patterns of their own: "^(?!a)(?=b)c" becomes "^c", "^(?:b)", and the
// negated "^(?:a)". A text matches the pattern if it satisfies all parts. Any other pattern is returned unchanged as
// the only part. If that part has lookaheads, parse_regex() refuses it.
std::vector<PatternPart> split_lookaheads(std::string_view pattern);

}  // namespace tessera::schema
