// Constrained output: a grammar says which tokens may come next. xgrammar stands behind it, in grammar.cpp alone; a
// build without it refuses every grammar with kUnimplemented.
//
//   std::unique_ptr<GrammarCompiler> compiler = TRY(GrammarCompiler::create(tokenizer, vocab_size, end_ids));
//   std::shared_ptr<const Grammar> grammar = TRY(compiler->compile({GrammarSpec::Kind::kJsonSchema, schema}));
//   GrammarMatcher matcher(grammar);
//   matcher.fill_mask(mask); …; matcher.accept(token);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"

namespace tessera {

class Tokenizer;

struct GrammarSpec {
  enum class Kind : std::uint8_t {
    kJsonObject,  // any JSON object; no text
    kJsonSchema,  // text: the schema
    kRegex,
    kEbnf,
  };
  Kind kind = Kind::kJsonObject;
  std::string text;
};

// Of all JSON that a compiler's grammars let through.
struct GrammarOptions {
  // What may stand between JSON's tokens: a regular expression of blanks, tabs and line ends ("[\n\t ]*"), in which
  // repetitions without end stop at kMaxJsonWhitespace. "": texts are compact, {"a": [1, 2]}, with one blank behind
  // each colon and comma, as Python's json.dumps writes and models know it.
  std::string json_whitespace{};
};

// What a client may ask for. Beyond these, and where an answer could not be held to it (a regex with an anchor in its
// middle or a lookahead, a schema with "contains"), a grammar is refused with the reason.
inline constexpr std::size_t kMaxGrammarBytes = 1024 * 1024;    // of a schema
inline constexpr std::size_t kMaxPatternBytes = 64 * 1024;      // of a regex or EBNF
inline constexpr int kMaxGrammarDepth = 64;                     // of a schema; a regex and EBNF nest 1000 parentheses
inline constexpr std::size_t kMaxGrammarRules = 8192;           // that it comes to
inline constexpr std::size_t kMaxGrammarMemory = 256ull << 20;  // bytes, of one grammar
inline constexpr double kMaxCompileSeconds = 10;                // of one thread
inline constexpr double kMaxMaskSeconds = 0.25;                 // of one thread, for one token
inline constexpr int kMaxJsonWhitespace = 32;                   // in a row, where json_whitespace has no end

// Compiled, immutable, shared by requests and threads.
//
// JSON schemas (draft 2020-12, and what draft 4 to 7 write differently) are compiled by schema/: every text is a value
// that the schema accepts, or the schema is refused. Which accepted values have no text:
// - What a schema does not speak of: properties beyond those that are named, and items beyond prefixItems, come only
//   where additionalProperties, patternProperties or items allow them, where nothing is named at all, or where
//   minProperties or minItems asks for them. Properties come in the order written, further ones behind them.
// - Integers of more than 18 digits; between bounds, numbers of more than 15 digits and exponents.
// - Values of "uniqueItems" come in any order where there are up to 6, and in the order written where there are more.
// - Characters that a pattern or a list of names decides about are written in one form: raw, or escaped where JSON asks
//   for it; those of a class of more than 1000 characters, in the middle of a pattern, raw alone. Halves of surrogate
//   pairs are never written.
// - Beside a maxLength of 64 or more, a pattern's repetitions stop at a count with which no text passes it: those
//   without end and of characters, and where these alone would stop before the eighth, all others.
// - Where alternatives of a oneOf overlap, or a not or if holds for a part, those values of objects that one property
//   tells apart are generated, and those of arrays that their number of items or the first item does.
// - Forms of a format that validators do not agree on (formats.h).
// Words that the standard does not define, "format" values among them, are annotations by the standard.
// Refused with kUnimplemented: contains; multipleOf of a fraction that is no sum of powers of two; uniqueItems of items
// without a short list of values; minProperties beyond the named ones and one more; unevaluatedProperties beside other
// schemas; oneOf, not, if and else where what they leave out cannot be taken away; lookaround (but for lookaheads
// behind a pattern's first "^"), backreferences and word boundaries in patterns, and what ECMA-262 and Python read
// differently ("{,3}", "[^]a]"); integers of const and enum that 64 bits do not hold; references out of the schema, and
// $dynamicRef. Properties whose names a schema leaves free never have the name of another property of the schema; two
// of them may have the same name.
class Grammar;

// What it takes, whoever shares it.
std::int64_t grammar_bytes(const Grammar& grammar);

class GrammarCompiler {
 public:
  // Whether this build has grammars.
  static bool available();
  // `vocab_size`: logits of a row. `end_ids`, below it, end the text where the grammar lets it end.
  // Copies what it needs of the tokenizer.
  // invalid_argument for options that are none.
  static Result<std::unique_ptr<GrammarCompiler>> create(const Tokenizer& tokenizer, std::int64_t vocab_size,
                                                         std::span<const TokenId> end_ids,
                                                         const GrammarOptions& options = {});
  ~GrammarCompiler();

  // Bytes that all kept grammars may take together, kMaxGrammarMemory until it is called. Before compile().
  void keep_at_most(std::size_t bytes);

  // From any thread. One of the last few grammars that compile() made, which are kept; null where it is none of them.
  std::shared_ptr<const Grammar> find(const GrammarSpec& spec) const;
  // From any thread, find() first. invalid_argument where `spec` is malformed, too large or too deep
  // (the message says what and where), unimplemented where it is good and cannot be held to; nothing a client sends
  // makes it throw, crash or run without end. Cost: 1 to 100 ms for common schemas and a vocabulary of 150 000; lengths
  // of strings add nothing to it, except beside a pattern that repeats several parts: some 10 ms for each character
  // then.
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec);

 private:
  struct Impl;
  explicit GrammarCompiler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Where one text stands in its grammar. Used by one thread at a time.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const Grammar> grammar);
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;
  ~GrammarMatcher();

  // 32-bit words of a mask.
  static std::int64_t mask_words(std::int64_t vocab_size) { return (vocab_size + 31) / 32; }
  // Bit i of the mask (word i / 32, bit i % 32) says whether token i may come next; ids past the tokenizer's may not.
  // `mask` has mask_words(vocab_size) words. Special tokens other than end ids are never allowed. Where the grammar
  // leaves no way on, or takes longer than kMaxMaskSeconds to say, only end ids are set and accept() gives that error.
  void fill_mask(std::span<std::uint32_t> mask);
  // Whether fill_mask() sets the token's bit.
  bool allows(TokenId token) const;
  // Takes the next token; internal_error where the grammar does not allow it. After an error every call returns it.
  Status accept(TokenId token);
  // Ok, or the error that accept() will return; fill_mask() may have caused it.
  Status status() const;
  // Nothing but an end token may follow: the text may end here without one.
  bool finished() const;

 private:
  friend class GrammarCompiler;  // asks a new grammar for its first mask
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
