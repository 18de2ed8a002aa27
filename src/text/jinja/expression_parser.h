// The expressions of a template, and the token stream that statements and expressions are read from.
#pragma once

#include <string>
#include <string_view>
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
  // The current token; moves on, but not behind the end.
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
  // "unexpected 'x'"
  std::string unexpected() const;

  // Between these two, names that are read are noted in the signature (caller, varargs, kwargs).
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

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  Result<ExpressionPtr> parse(bool with_conditional = true);
  // One expression, or a tuple of several with commas between them.
  Result<ExpressionPtr> parse_tuple(bool with_conditional = true, bool parenthesised = false);
  // "| a | b" behind a set block's name, or (`inline_first`) "a | b" in a filter block: applied to a
  // kBlockText.
  Result<ExpressionPtr> parse_block_filters(bool inline_first);

 private:
  using Kind = Expression::Kind;
  std::unique_ptr<Expression> make(Kind kind) const;
  Result<ExpressionPtr> finish(std::unique_ptr<Expression> expression) const;
  Result<ExpressionPtr> join(Kind kind, ExpressionPtr left, ExpressionPtr right, std::size_t offset) const;
  template <class Parse>
  auto nested(Parse parse) -> decltype(parse());

  Result<ExpressionPtr> parse_conditional();
  Result<ExpressionPtr> parse_or();
  Result<ExpressionPtr> parse_and();
  Result<ExpressionPtr> parse_not();
  Result<ExpressionPtr> parse_compare();
  Result<ExpressionPtr> parse_sum();
  Result<ExpressionPtr> parse_concat();
  Result<ExpressionPtr> parse_product();
  Result<ExpressionPtr> parse_power();
  Result<ExpressionPtr> parse_unary(bool with_filters);
  Result<ExpressionPtr> parse_primary();
  Result<ExpressionPtr> parse_number();
  Result<ExpressionPtr> parse_list();
  Result<ExpressionPtr> parse_dict();
  Result<ExpressionPtr> parse_postfix(ExpressionPtr left, bool with_filters);
  Result<ExpressionPtr> parse_dot(ExpressionPtr left);
  Result<ExpressionPtr> parse_subscript(ExpressionPtr left);
  Result<ExpressionPtr> parse_call(ExpressionPtr left);
  Result<ExpressionPtr> parse_filter(ExpressionPtr left);
  Result<ExpressionPtr> parse_test(ExpressionPtr left);
  Result<CallSyntax> parse_arguments();
  Result<std::string> parse_dotted_name();

  TokenStream& tokens_;
  int depth_ = 0;
};

}  // namespace tessera::jinja
