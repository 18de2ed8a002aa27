// Limits on the grammars that clients send, of every kind.
#pragma once

#include <cstddef>

namespace tessera {

// A grammar beyond a limit is refused with the reason. A grammar is also refused if it has a part that cannot be
// enforced, for example a regex with an anchor in its middle, or a schema with "contains".
inline constexpr std::size_t kMaxGrammarBytes = 1024 * 1024;    // length of a schema
inline constexpr std::size_t kMaxPatternBytes = 64 * 1024;      // length of a regex or EBNF
inline constexpr int kMaxGrammarDepth = 64;                     // nesting of a schema; a regex or EBNF may nest 1000
inline constexpr std::size_t kMaxGrammarRules = 8192;           // rules of the compiled grammar
inline constexpr std::size_t kMaxGrammarMemory = 256ull << 20;  // bytes of one grammar
inline constexpr double kMaxCompileSeconds = 10;                // thread time
inline constexpr double kMaxMaskSeconds = 0.25;                 // thread time for one token's mask
inline constexpr int kMaxJsonWhitespace = 32;                   // greatest count of a repetition in json_whitespace

}  // namespace tessera
