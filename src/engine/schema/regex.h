// Regular expressions of JSON schemas ("pattern": ECMA-262) as trees.
//
// ECMA-262 and Python's re, which most Python validators use, read some parts differently: the characters of \d, \s and
// \w beyond ASCII, line ends for the dot, and "$" before a last newline. A tree has both readings. The narrow reading
// holds the texts that every dialect matches. Only these texts are generated. The wide reading holds the texts that at
// least one dialect matches. If a pattern must not match, all of these texts are excluded.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/schema/char_set.h"

namespace tessera::schema {

struct RegexNode;
using Regex = std::shared_ptr<const RegexNode>;

inline constexpr int kMaxRegexCount = 100000;  // largest count of one repetition

struct RegexNode {
  enum class Kind : std::uint8_t {
    kClass,     // one character: of `narrow` in the narrow reading, of `wide` in the wide reading
    kSequence,  // all `parts` in order; none: the empty text
    kChoice,    // one of `parts`; none: matches nothing
    kRepeat,    // the only part, `min` to `max` times
    kStart,     // "^": no character precedes
    kEnd,       // "$": no character follows
  };
  Kind kind = Kind::kSequence;
  CharSet narrow{};
  CharSet wide{};
  std::vector<Regex> parts{};
  int min = 0;
  int max = -1;  // -1: unbounded
};

Regex make_class(CharSet both);
Regex make_class(CharSet narrow, CharSet wide);
Regex make_text(std::string_view utf8);
Regex make_sequence(std::vector<Regex> parts);
Regex make_choice(std::vector<Regex> parts);
Regex make_repeat(Regex part, int min, int max);
// Returns a regex that matches only the whole text, not a part of it.
Regex make_whole(Regex regex);
// Returns a regex that matches any one character.
Regex make_any();

// Parses a "pattern", which by itself may match anywhere in a text. Returns invalid_argument, with the offset, if it is
// malformed. Returns unimplemented, with the construct's name, if it is not a regular language or not supported:
// lookaround, backreferences, word boundaries, flags, some Unicode classes.
Result<Regex> parse_regex(std::string_view pattern);

// The lengths of the shortest and the longest text that match, in code points. A `max` of -1 means unbounded. Anchors
// have no length.
struct LengthRange {
  std::int64_t min = 0;
  std::int64_t max = 0;
};
LengthRange regex_lengths(const Regex& regex);
bool has_anchor(const Regex& regex);
// Returns the number of character ranges in all classes, a measure of the tree's memory.
std::size_t regex_ranges(const Regex& regex);

// Removes the anchors of a regex that has anchors only at the sides of its alternatives. Returns X for "^X$". Adds
// "any*" on each side without an anchor, so X becomes "any* X any*". Returns null if an anchor is inside an
// alternative.
Regex without_anchors(const Regex& regex);

}  // namespace tessera::schema
