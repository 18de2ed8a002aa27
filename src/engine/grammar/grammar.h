// Constrained output: a grammar says which tokens may come next. Only grammar.cpp uses xgrammar. A build without
// xgrammar refuses every grammar with kUnimplemented.
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
#include "tessera/engine/schema/grammar_limits.h"

namespace tessera {

class Tokenizer;

struct GrammarSpec {
  enum class Kind : std::uint8_t {
    kJsonObject,  // any JSON object; `text` is empty
    kJsonSchema,  // `text` is the schema
    kRegex,
    kEbnf,
  };
  Kind kind = Kind::kJsonObject;
  std::string text;
};

// Options of the JSON grammars of a compiler.
struct GrammarOptions {
  // A regular expression for the whitespace between JSON's tokens: blanks, tabs and line ends ("[\n\t ]*"). The counts
  // of its repetitions are limited to kMaxJsonWhitespace. If it is empty, texts have one blank after each colon and
  // comma, like {"a": [1, 2]}. Python's json.dumps writes this form, and models know it.
  std::string json_whitespace{};
};

// A compiled grammar. Immutable; requests and threads share it.
//
// schema/ compiles JSON schemas (draft 2020-12, and the parts that draft 4 to 7 write differently). Every generated
// text is a value that the schema accepts. A schema for which this cannot be guaranteed is refused. The following
// accepted values are never generated:
// - Properties beyond the named ones and items beyond prefixItems. Three exceptions are generated: those that
// additionalProperties, patternProperties or items allow, those that minProperties or minItems needs, and those of a
// schema that names nothing. Named properties are generated in the order written, and the others follow.
// - Integers of more than 18 digits. Bounded numbers of more than 15 digits, or with an exponent.
// - Arrays with "uniqueItems" in another order than the one in which the schema lists the values, if there are more
// than 6 values. Up to 6 values are generated in any order.
// - Other spellings of characters in patterns and lists of names. A character has one form: raw, or escaped if JSON
// requires it. A class of more than 1000 characters in the middle of a pattern gives only characters that need no
// escape. Halves of surrogate pairs are never generated.
// - Long repetitions in a pattern that has a maxLength of 64 or more. Unbounded repetitions, and repetitions of single
// characters, stop at a count with which no text exceeds maxLength. If that count would be below eight, repetitions of
// every kind stop at such a count.
// - Some values of schemas with oneOf, not or if. Objects are generated only if one property shows which of the schemas
// they match, and arrays only if their number of items or their first item shows it.
// - Forms of a format that validators do not agree on (formats.h).
//
// Keywords and "format" values that JSON Schema does not define are treated as annotations. A multipleOf holds for
// decimals: 0.07 is a multiple of 0.01, although a quotient of doubles is not an integer. A property whose name the
// schema leaves free never gets a name that the schema mentions. Two properties with free names may get the same name.
//
// The following are refused with kUnimplemented: contains; multipleOf of more than 15 digits or decimal places;
// uniqueItems of items without a list of up to 512 values; a minProperties that needs two or more properties beyond the
// named ones; unevaluatedProperties together with other schemas; oneOf, not, if and else that exclude values which no
// grammar here can exclude; in patterns: lookaround (except lookaheads after the first "^"), backreferences, word
// boundaries, and syntax that ECMA-262 and Python read differently ("{,3}", "[^]a]"); integers of const and enum that
// do not fit 64 bits; references out of the schema, and $dynamicRef.
class Grammar;

// Returns the bytes that the grammar takes. They do not grow with the number of requests that share the grammar.
std::int64_t grammar_bytes(const Grammar& grammar);

class GrammarCompiler {
 public:
  // Returns whether this build supports grammars.
  static bool available();
  // `vocab_size` is the number of logits in a row. `end_ids`, all below vocab_size, end the text wherever the grammar
  // allows it to end. The compiler keeps no reference to the tokenizer. Returns invalid_argument for invalid options.
  static Result<std::unique_ptr<GrammarCompiler>> create(const Tokenizer& tokenizer, std::int64_t vocab_size,
                                                         std::span<const TokenId> end_ids,
                                                         const GrammarOptions& options = {});
  ~GrammarCompiler();

  // Bounds the bytes of all kept grammars together; the default is kMaxGrammarMemory. Call it before compile().
  void keep_at_most(std::size_t bytes);

  // Returns the grammar if compile() has made it and the compiler still keeps it, else null. Any thread may call it.
  std::shared_ptr<const Grammar> find(const GrammarSpec& spec) const;
  // Returns find()'s grammar, or compiles the grammar if there is none. Any thread may call this. Returns
  // invalid_argument if `spec` is malformed, too large or too deep (the message says what and where), and unimplemented
  // if it is valid but cannot be enforced. No input makes this function throw, crash or run forever. Common schemas
  // take 1 to 100 ms with a vocabulary of 150 000 tokens. A bound on a string's length does not change this time,
  // unless the string also has a pattern that repeats several parts. In that case, each character that the bound allows
  // adds about 10 ms.
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec);

 private:
  struct Impl;
  explicit GrammarCompiler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The position of one text in its grammar. One thread at a time may use it.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const Grammar> grammar);
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;
  ~GrammarMatcher();

  // Returns how many 32-bit words a mask has.
  static std::int64_t mask_words(std::int64_t vocab_size) { return (vocab_size + 31) / 32; }
  // Fills a mask of mask_words(vocab_size) words. Bit i % 32 of word i / 32 is 1 if token i may come next. Ids that the
  // tokenizer does not have, and special tokens other than end ids, are never allowed. If no token can follow, or the
  // mask takes longer than kMaxMaskSeconds, only end ids are set, and accept() returns the error.
  void fill_mask(std::span<std::uint32_t> mask);
  // Fills the masks of the next token and of the token after each of `drafts`: [drafts + 1, mask_words(vocab_size)].
  // The text's position does not change. After a draft that the grammar forbids, all masks allow every token. This is
  // harmless, because the draft is refused and the rows after it are dropped.
  void fill_masks(std::span<const TokenId> drafts, std::span<std::uint32_t> masks);
  // Returns whether fill_mask() sets the token's bit.
  bool allows(TokenId token) const;
  // Takes the next token. Returns internal_error if the grammar does not allow it. After an error every call returns
  // that error.
  Status accept(TokenId token);
  // Returns ok, or the error that the next accept() will return. fill_mask() can also be the cause of this error.
  Status status() const;
  // Returns whether only an end token may follow. The text is then complete, and may end without an end token.
  bool finished() const;

 private:
  friend class GrammarCompiler;  // it computes the first mask of a new grammar
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
