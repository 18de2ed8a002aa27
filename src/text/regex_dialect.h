// Translates the patterns of tokenizer files. The files write them for Oniguruma (Ruby syntax), and this engine matches
// with PCRE2. If the two read the same text differently, the pattern is rewritten to Oniguruma's meaning or refused:
//
//   \s \S \w       Oniguruma's sets, which differ from PCRE2's in a few characters
//   x{1,3}+        repeats the interval (PCRE2: possessive)
//   [a&&b] [a[b]]  set operations: refused
//   \h \b \W       refused if the meaning would differ
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// Returns the PCRE2 pattern (for UTF | UCP | MULTILINE) that matches what Oniguruma matches. The error says what is
// refused and at which byte of `regex`.
Result<std::string> oniguruma_to_pcre2(std::string_view regex);

}  // namespace tessera
