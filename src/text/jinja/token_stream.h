// Holds the tokens of a template, which the parsers of statements and expressions read in order.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/text/jinja/ast.h"
#include "tessera/text/jinja/lexer.h"

namespace tessera::jinja {

class TokenStream {
 public:
  // Borrows the source.
  TokenStream(const Source& source, std::vector<Token> tokens) : source_(source), tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  // Returns the current token and moves to the next one, but not past the end.
  const Token& take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }

  bool at_name(std::string_view name) const { return at(Token::Kind::kName, name); }
  bool at_operator(std::string_view op) const { return at(Token::Kind::kOperator, op); }
  bool take_name(std::string_view name) { return at_name(name) && (take(), true); }
  bool take_operator(std::string_view op) { return at_operator(op) && (take(), true); }
  Result<Token> expect(Token::Kind kind, std::string_view what);
  Status expect_operator(std::string_view op);

  Status fail(std::string message) const { return fail_at(current().offset, std::move(message)); }
  Status fail_at(std::size_t offset, std::string message) const {
    return source_.syntax_error(offset, std::move(message));
  }
  Status error_at(std::size_t offset, const Status& why) const { return source_.error(offset, why); }
  Status fail_unimplemented(std::string message) const {
    return error_at(current().offset, unimplemented(std::move(message)));
  }
  // Returns "unexpected 'x'".
  std::string unexpected() const;

  // The parser calls begin_signature() before it parses the body of a macro, and end_signature() after that. In
  // between, the signature records which of the names caller, varargs and kwargs the body reads.
  void begin_signature(Signature& signature) { signatures_.push_back(&signature); }
  void end_signature() { signatures_.pop_back(); }
  void note_name(std::string_view name);

 private:
  bool at(Token::Kind kind, std::string_view text) const { return current().kind == kind && current().text == text; }
  const Source& source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::vector<Signature*> signatures_;
};

}  // namespace tessera::jinja
