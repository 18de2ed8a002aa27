// Translates the patterns of tokenizer files. The patterns are written for Oniguruma (Ruby syntax), but Tessera matches
// with PCRE2. If the two libraries read a construct differently, the construct is refused or is rewritten so that PCRE2
// matches like Oniguruma. These are the constructs and their treatment:
//
//   \s \S \w       match Oniguruma's sets, which differ from PCRE2's in a few characters
//   x{1,3}+        repeats x{1,3}; in PCRE2 the unchanged text would be a possessive quantifier
//   [a&&b] [a[b]]  are set operations, which are refused
//   \h \b \W       are refused, except \b in a class
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// Returns the PCRE2 pattern (for UTF | UCP | MULTILINE) that matches what Oniguruma matches. The error says what is
// refused and at which byte of `regex`.
Result<std::string> oniguruma_to_pcre2(std::string_view regex);

}  // namespace tessera
