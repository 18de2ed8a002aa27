// Limits on grammars of every kind that clients send.
#pragma once

#include <cstddef>

namespace tessera {

// A grammar that exceeds a limit is refused, with a message that says why. A grammar is also refused if it has a part
// that cannot be enforced, for example a regex with an anchor in its middle, or a schema with "contains".
inline constexpr std::size_t kMaxGrammarBytes = 1024 * 1024;    // maximum length of a schema
inline constexpr std::size_t kMaxPatternBytes = 64 * 1024;      // maximum length of a regex or EBNF
inline constexpr int kMaxGrammarDepth = 64;                     // maximum nesting of a schema; 1000 for a regex or EBNF
inline constexpr std::size_t kMaxGrammarRules = 8192;           // maximum number of rules of the compiled grammar
inline constexpr std::size_t kMaxGrammarMemory = 256ull << 20;  // maximum size of one grammar
inline constexpr double kMaxCompileSeconds = 10;                // maximum thread time to compile a grammar
inline constexpr double kMaxMaskSeconds = 0.25;                 // maximum thread time for one token's mask
inline constexpr int kMaxJsonWhitespace = 32;                   // maximum count of a repetition in json_whitespace

}  // namespace tessera
