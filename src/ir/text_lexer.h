// Tokens of the text form (ir/text.h). For the parser and printer only.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera::ir {

bool is_name_char(char c);               // of a bare name: letters, digits, '_', '.'
bool is_word(std::string_view text);     // a name that begins with a letter or '_'
bool is_keyword(std::string_view text);  // a word that begins a statement

struct Token {
  enum class Kind {
    kWord,         // text
    kNumber,       // text, not yet read: digits with sign, point, exponent
    kString,       // text, without quotes and escapes
    kValue,        // %text
    kGraphName,    // @text
    kPunctuation,  // text: one of ( ) { } [ ] , : =
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  std::size_t offset = 0;  // of its first byte
};

// How a token is named in an error: "'('", "the end of the text".
std::string shown(const Token& token);

// Borrows the text.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  // The error is a character that begins no token, or a string without its end.
  Result<Token> next();
  // One dimension: what stands before the next ',' or ']' of this line. To be called where "[" or "," was the last
  // token.
  Result<Token> dimension();
  // "line 3, column 14: <message>"
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
