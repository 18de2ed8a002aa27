// Parses the expressions of a template by recursive descent. expression_parser.cpp parses the operators, from those
// that bind most weakly down to the operands. postfix_parser.cpp parses what may follow an operand: a member, an item,
// a call, a filter or a test.
#pragma once

#include <string>
#include <utility>

#include "tessera/base/status.h"
#include "tessera/text/jinja/ast.h"
#include "tessera/text/jinja/token_stream.h"

namespace tessera::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  Result<ExpressionPtr> parse(bool with_conditional = true);
  // Parses one expression, or a tuple of several separated by commas.
  Result<ExpressionPtr> parse_tuple(bool with_conditional = true, bool parenthesised = false);
  // Parses the filters of a block: "| a | b" after a set block's name, or (with `inline_first`) "a | b" in a filter
  // block. The filters apply to a kBlockText expression.
  Result<ExpressionPtr> parse_block_filters(bool inline_first);

 private:
  using Kind = Expression::Kind;
  std::unique_ptr<Expression> make(Kind kind) const;
  Result<ExpressionPtr> finish(std::unique_ptr<Expression> expression) const;
  Result<ExpressionPtr> join(Kind kind, ExpressionPtr left, ExpressionPtr right, std::size_t offset) const;
  // Calls `parse` one level deeper, so that the recursion of this parser is bounded.
  template <class Parse>
  auto nested(Parse parse) -> decltype(parse()) {
    if (depth_ >= kMaxSyntaxDepth)
      return tokens_.fail("an expression nested deeper than " + std::to_string(kMaxSyntaxDepth));
    ++depth_;
    auto result = parse();
    --depth_;
    return result;
  }

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
