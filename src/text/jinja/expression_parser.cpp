#include "tessera/text/jinja/expression_parser.h"

#include <algorithm>

#include "tessera/text/jinja/literals.h"

namespace tessera::jinja {
namespace {

bool is_tuple_end(const Token& token) {
  return token.kind == Token::Kind::kPrintEnd || token.kind == Token::Kind::kBlockEnd ||
         (token.kind == Token::Kind::kOperator && token.text == ")");
}

}  // namespace

std::unique_ptr<Expression> ExpressionParser::make(Kind kind) const {
  return std::make_unique<Expression>(Expression{.kind = kind, .offset = tokens_.current().offset});
}

// Refuses a tree that is too deep, so that evaluating and freeing it never overflow the stack. The limit of the
// parser's recursion does not suffice, because a chain of left-associative operators makes a deep tree without
// recursion.
Result<ExpressionPtr> ExpressionParser::finish(std::unique_ptr<Expression> expression) const {
  int depth = 0;
  const auto note = [&](const ExpressionPtr& part) {
    if (part != nullptr) depth = std::max(depth, part->depth);
  };
  for (const ExpressionPtr& part : expression->parts) note(part);
  for (const ExpressionPtr& part : expression->call.positional) note(part);
  for (const auto& [name, part] : expression->call.named) note(part);
  note(expression->call.star);
  note(expression->call.star_star);
  expression->depth = depth + 1;
  if (expression->depth > kMaxSyntaxDepth) {
    return tokens_.fail_at(expression->offset, "an expression nested deeper than " + std::to_string(kMaxSyntaxDepth));
  }
  return ExpressionPtr(std::move(expression));
}

Result<ExpressionPtr> ExpressionParser::join(Kind kind, ExpressionPtr left, ExpressionPtr right,
                                             std::size_t offset) const {
  auto out = make(kind);
  out->offset = offset;
  out->parts.push_back(std::move(left));
  out->parts.push_back(std::move(right));
  return finish(std::move(out));
}

Result<ExpressionPtr> ExpressionParser::parse(bool with_conditional) {
  return nested([&] { return with_conditional ? parse_conditional() : parse_or(); });
}

Result<ExpressionPtr> ExpressionParser::parse_tuple(bool with_conditional, bool parenthesised) {
  auto tuple = make(Kind::kTuple);
  bool comma = false;
  while (!is_tuple_end(tokens_.current())) {
    tuple->parts.push_back(TRY(parse(with_conditional)));
    if (!tokens_.take_operator(",")) break;
    comma = true;
  }
  if (comma || (tuple->parts.empty() && parenthesised)) return finish(std::move(tuple));
  if (tuple->parts.empty()) return tokens_.fail(tokens_.unexpected() + "; expected an expression");
  return std::move(tuple->parts[0]);
}

Result<ExpressionPtr> ExpressionParser::parse_block_filters(bool inline_first) {
  ExpressionPtr out = TRY(finish(make(Kind::kBlockText)));
  if (inline_first) out = TRY(parse_filter(std::move(out)));
  while (tokens_.take_operator("|")) out = TRY(parse_filter(std::move(out)));
  return out;
}

Result<ExpressionPtr> ExpressionParser::parse_conditional() {
  ExpressionPtr left = TRY(parse_or());
  while (tokens_.at_name("if")) {
    auto out = make(Kind::kConditional);
    tokens_.take();
    out->parts.push_back(std::move(left));
    out->parts.push_back(TRY(parse_or()));
    out->parts.emplace_back();
    if (tokens_.take_name("else")) out->parts.back() = TRY(parse());
    left = TRY(finish(std::move(out)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_or() {
  ExpressionPtr left = TRY(parse_and());
  for (std::size_t offset; offset = tokens_.current().offset, tokens_.take_name("or");) {
    ExpressionPtr right = TRY(parse_and());
    left = TRY(join(Kind::kOr, std::move(left), std::move(right), offset));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_and() {
  ExpressionPtr left = TRY(parse_not());
  for (std::size_t offset; offset = tokens_.current().offset, tokens_.take_name("and");) {
    ExpressionPtr right = TRY(parse_not());
    left = TRY(join(Kind::kAnd, std::move(left), std::move(right), offset));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_not() {
  if (!tokens_.at_name("not")) return parse_compare();
  auto out = make(Kind::kNot);
  tokens_.take();
  out->parts.push_back(TRY(nested([&] { return parse_not(); })));
  return finish(std::move(out));
}

Result<ExpressionPtr> ExpressionParser::parse_compare() {
  constexpr std::pair<std::string_view, CompareOperator> kSymbols[] = {
      {"==", CompareOperator::kEqual},     {"!=", CompareOperator::kNotEqual}, {"<", CompareOperator::kLess},
      {"<=", CompareOperator::kLessEqual}, {">", CompareOperator::kGreater},   {">=", CompareOperator::kGreaterEqual}};
  auto out = make(Kind::kCompare);
  out->parts.push_back(TRY(parse_sum()));
  for (;;) {
    bool found = false;
    for (const auto& [symbol, op] : kSymbols) {
      if (found || !tokens_.at_operator(symbol)) continue;
      out->compare.push_back(op);
      found = true;
    }
    if (!found && tokens_.at_name("in")) {
      out->compare.push_back(CompareOperator::kIn);
      found = true;
    }
    if (!found && tokens_.at_name("not") && tokens_.next().kind == Token::Kind::kName && tokens_.next().text == "in") {
      tokens_.take();
      out->compare.push_back(CompareOperator::kNotIn);
      found = true;
    }
    if (!found) break;
    if (out->compare.size() == 1) out->offset = tokens_.current().offset;
    tokens_.take();
    out->parts.push_back(TRY(parse_sum()));
  }
  if (out->compare.empty()) return std::move(out->parts[0]);
  return finish(std::move(out));
}

Result<ExpressionPtr> ExpressionParser::parse_sum() {
  ExpressionPtr left = TRY(parse_concat());
  while (tokens_.at_operator("+") || tokens_.at_operator("-")) {
    auto out = make(Kind::kBinary);
    out->binary = tokens_.take().text == "+" ? BinaryOperator::kAdd : BinaryOperator::kSubtract;
    out->parts.push_back(std::move(left));
    out->parts.push_back(TRY(parse_concat()));
    left = TRY(finish(std::move(out)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_concat() {
  ExpressionPtr first = TRY(parse_product());
  if (!tokens_.at_operator("~")) return first;
  auto out = make(Kind::kConcat);
  out->parts.push_back(std::move(first));
  while (tokens_.take_operator("~")) out->parts.push_back(TRY(parse_product()));
  return finish(std::move(out));
}

Result<ExpressionPtr> ExpressionParser::parse_product() {
  constexpr std::pair<std::string_view, BinaryOperator> kSymbols[] = {{"*", BinaryOperator::kMultiply},
                                                                      {"/", BinaryOperator::kDivide},
                                                                      {"//", BinaryOperator::kFloorDivide},
                                                                      {"%", BinaryOperator::kModulo}};
  ExpressionPtr left = TRY(parse_power());
  for (;;) {
    const auto* symbol = std::find_if(std::begin(kSymbols), std::end(kSymbols),
                                      [&](const auto& entry) { return tokens_.at_operator(entry.first); });
    if (symbol == std::end(kSymbols)) return left;
    auto out = make(Kind::kBinary);
    tokens_.take();
    out->binary = symbol->second;
    out->parts.push_back(std::move(left));
    out->parts.push_back(TRY(parse_power()));
    left = TRY(finish(std::move(out)));
  }
}

Result<ExpressionPtr> ExpressionParser::parse_power() {
  ExpressionPtr left = TRY(parse_unary(true));
  while (tokens_.at_operator("**")) {
    auto out = make(Kind::kBinary);
    tokens_.take();
    out->binary = BinaryOperator::kPower;
    out->parts.push_back(std::move(left));
    out->parts.push_back(TRY(parse_unary(true)));
    left = TRY(finish(std::move(out)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_unary(bool with_filters) {
  ExpressionPtr out;
  if (tokens_.at_operator("-") || tokens_.at_operator("+")) {
    auto sign = make(tokens_.at_operator("-") ? Kind::kNegative : Kind::kPositive);
    tokens_.take();
    sign->parts.push_back(TRY(nested([&] { return parse_unary(false); })));
    out = TRY(finish(std::move(sign)));
  } else {
    out = TRY(parse_primary());
  }
  return parse_postfix(std::move(out), with_filters);
}

Result<ExpressionPtr> ExpressionParser::parse_primary() {
  auto out = make(Kind::kConstant);
  const Token& token = tokens_.current();
  switch (token.kind) {
    case Token::Kind::kName: {
      const std::string name = tokens_.take().text;
      if (name == "true" || name == "True") {
        out->constant = Value(true);
      } else if (name == "false" || name == "False") {
        out->constant = Value(false);
      } else if (name != "none" && name != "None") {
        tokens_.note_name(name);
        out->kind = Kind::kName;
        out->name = name;
      }
      return finish(std::move(out));
    }
    case Token::Kind::kString: {
      std::string text;
      while (tokens_.current().kind == Token::Kind::kString) text += tokens_.take().text;
      out->constant = Value(std::move(text));
      return finish(std::move(out));
    }
    case Token::Kind::kInteger:
    case Token::Kind::kFloat: return parse_number();
    default: break;
  }
  if (tokens_.take_operator("(")) {
    ExpressionPtr inner = TRY(parse_tuple(true, true));
    TRY(tokens_.expect_operator(")"));
    return inner;
  }
  if (tokens_.at_operator("[")) return parse_list();
  if (tokens_.at_operator("{")) return parse_dict();
  return tokens_.fail(tokens_.unexpected() + "; expected an expression");
}

Result<ExpressionPtr> ExpressionParser::parse_number() {
  auto out = make(Kind::kConstant);
  const std::size_t offset = tokens_.current().offset;
  const Token token = tokens_.take();
  if (token.kind == Token::Kind::kFloat) {
    out->constant = Value(parse_float(token.text).value_or(0.0));
  } else {
    if (token.text.size() > 1 && token.text[0] == '0' && token.text.find_first_not_of('0') != std::string::npos) {
      return tokens_.fail_at(offset, "an integer that begins with 0: " + token.text);
    }
    const Result<std::optional<std::int64_t>> value = parse_integer(token.text, 10);
    if (!value.ok()) return tokens_.error_at(offset, value.status());
    out->constant = Value((*value).value_or(0));
  }
  return finish(std::move(out));
}

Result<ExpressionPtr> ExpressionParser::parse_list() {
  auto out = make(Kind::kList);
  tokens_.take();
  while (!tokens_.at_operator("]")) {
    out->parts.push_back(TRY(parse()));
    if (!tokens_.at_operator("]")) TRY(tokens_.expect_operator(","));
  }
  tokens_.take();
  return finish(std::move(out));
}

Result<ExpressionPtr> ExpressionParser::parse_dict() {
  auto out = make(Kind::kDict);
  tokens_.take();
  while (!tokens_.at_operator("}")) {
    out->parts.push_back(TRY(parse()));
    TRY(tokens_.expect_operator(":"));
    out->parts.push_back(TRY(parse()));
    if (!tokens_.at_operator("}")) TRY(tokens_.expect_operator(","));
  }
  tokens_.take();
  return finish(std::move(out));
}

}  // namespace tessera::jinja
