// Tokens of the text form (ir/text.h). Only the parser and printer use them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera::ir {

bool is_name_char(char c);               // whether a bare name may contain `c`: letters, digits, '_', '.'
bool is_word(std::string_view text);     // whether `text` is a name that begins with a letter or '_'
bool is_keyword(std::string_view text);  // whether `text` is a word that begins a statement

struct Token {
  enum class Kind {
    kWord,         // `text` is the word
    kNumber,       // `text` is the number, with sign, point and exponent
    kString,       // `text` is the string without quotes and escapes
    kValue,        // %text
    kGraphName,    // @text
    kPunctuation,  // `text` is one of ( ) { } [ ] , : =
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  std::size_t offset = 0;  // offset of the token's first byte in the text
};

// Returns the text by which an error names a token, such as "'('" or "the end of the text".
std::string shown(const Token& token);

// Splits a text into tokens. The text must outlive the lexer.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  // Returns the next token. Returns an error if no token can begin with the next character, or if a string has no
  // closing quote.
  Result<Token> next();
  // Reads one dimension. It ends before the first character that no dimension contains, such as ',', ']' or a line
  // break. Precondition: "[" or "," was the last token.
  Result<Token> dimension();
  // Returns an error with the text "line 3, column 14: <message>".
  Status error_at(std::size_t offset, std::string_view message) const;

 private:
  void skip_space();
  Result<std::string> quoted();
  Result<char> escaped();
  std::string_view take_name();

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace tessera::ir
