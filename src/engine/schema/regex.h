// Regular expressions as JSON schemas write them ("pattern": ECMA-262), as trees.
//
// ECMA-262 and Python's re, which most validators in Python use, read some parts differently: what \d, \s and \w hold
// beyond ASCII, line ends for the dot, and "$" before a last newline. A tree has both readings: what every reading
// matches (narrow), which is what may be generated, and what any reading matches (wide), which is what must be kept out
// where a pattern must not match.
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

inline constexpr int kMaxRegexCount = 100000;  // of a repetition

struct RegexNode {
  enum class Kind : std::uint8_t {
    kClass,     // one character of `narrow` (or of `wide`)
    kSequence,  // all `parts`; none: the empty text
    kChoice,    // one of `parts`; none: nothing matches
    kRepeat,    // the only part, `min` to `max` times
    kStart,     // "^": no character before
    kEnd,       // "$": no character after
  };
  Kind kind = Kind::kSequence;
  CharSet narrow{};
  CharSet wide{};
  std::vector<Regex> parts{};
  int min = 0;
  int max = -1;  // -1: without end
};

Regex make_class(CharSet both);
Regex make_class(CharSet narrow, CharSet wide);
Regex make_text(std::string_view utf8);
Regex make_sequence(std::vector<Regex> parts);
Regex make_choice(std::vector<Regex> parts);
Regex make_repeat(Regex part, int min, int max);
// The whole text is of `regex`.
Regex make_whole(Regex regex);
// Any character.
Regex make_any();

// A "pattern", which by itself may match anywhere in a text. invalid_argument where it is malformed (with the offset),
// unimplemented with the construct's name where it is not a regular language or not supported: lookaround,
// backreferences, word boundaries, flags, some classes of Unicode.
Result<Regex> parse_regex(std::string_view pattern);

// Code points of the shortest and of the longest text; `max` -1: without end. Anchors count as nothing.
struct LengthRange {
  std::int64_t min = 0;
  std::int64_t max = 0;
};
LengthRange regex_lengths(const Regex& regex);
bool has_anchor(const Regex& regex);
// Ranges of characters in all classes: what a tree takes of memory.
std::size_t regex_ranges(const Regex& regex);

// Whether `regex` is "^X$" in each of its alternatives, or lacks an anchor at a side but has none inside: then X (or
// "any* X any*") of each alternative, and null otherwise.
Regex without_anchors(const Regex& regex);

}  // namespace tessera::schema
