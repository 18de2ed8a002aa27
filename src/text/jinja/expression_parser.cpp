#include "tessera/text/jinja/expression_parser.h"

#include <algorithm>

#include "tessera/text/jinja/filters.h"
#include "tessera/text/jinja/python_string.h"
#include "tessera/text/jinja/value_tests.h"

namespace tessera::jinja {
namespace {

bool is_tuple_end(const Token& token) {
  return token.kind == Token::Kind::kPrintEnd || token.kind == Token::Kind::kBlockEnd ||
         (token.kind == Token::Kind::kOperator && token.text == ")");
}

}  // namespace

Result<Token> TokenStream::expect(Token::Kind kind, std::string_view what) {
  if (current().kind != kind) return fail(unexpected() + "; expected " + std::string(what));
  return take();
}

Status TokenStream::expect_operator(std::string_view op) {
  if (take_operator(op)) return ok_status();
  return fail(unexpected() + "; expected '" + std::string(op) + "'");
}

std::string TokenStream::unexpected() const {
  switch (current().kind) {
    case Token::Kind::kEnd: return "unexpected end of template";
    case Token::Kind::kPrintEnd: return "unexpected end of print statement";
    case Token::Kind::kBlockEnd: return "unexpected end of statement block";
    case Token::Kind::kString: return "unexpected string";
    default: return "unexpected '" + current().text + "'";
  }
}

void TokenStream::note_name(std::string_view name) {
  for (Signature* signature : signatures_) {
    if (name == "caller") signature->uses_caller = true;
    if (name == "varargs") signature->uses_varargs = true;
    if (name == "kwargs") signature->uses_kwargs = true;
  }
}

std::unique_ptr<Expression> ExpressionParser::make(Kind kind) const {
  return std::make_unique<Expression>(Expression{.kind = kind, .offset = tokens_.current().offset});
}

// The tree's depth is bounded here, so that evaluating and freeing it never overflow the stack: a
// chain of left-associative operators is deep without any recursion of the parser.
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

template <class Parse>
auto ExpressionParser::nested(Parse parse) -> decltype(parse()) {
  if (depth_ >= kMaxSyntaxDepth)
    return tokens_.fail("an expression nested deeper than " + std::to_string(kMaxSyntaxDepth));
  ++depth_;
  auto result = parse();
  --depth_;
  return result;
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

Result<ExpressionPtr> ExpressionParser::parse_postfix(ExpressionPtr left, bool with_filters) {
  bool filtered = false;  // behind a filter or test only further filters, tests and calls may follow
  for (;;) {
    if (!filtered && tokens_.at_operator(".")) {
      left = TRY(parse_dot(std::move(left)));
    } else if (!filtered && tokens_.at_operator("[")) {
      left = TRY(parse_subscript(std::move(left)));
    } else if (tokens_.at_operator("(")) {
      left = TRY(parse_call(std::move(left)));
    } else if (with_filters && tokens_.take_operator("|")) {
      left = TRY(parse_filter(std::move(left)));
      filtered = true;
    } else if (with_filters && tokens_.at_name("is")) {
      left = TRY(parse_test(std::move(left)));
      filtered = true;
    } else {
      return left;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::parse_dot(ExpressionPtr left) {
  auto out = make(Kind::kAttribute);
  tokens_.take();
  out->parts.push_back(std::move(left));
  if (tokens_.current().kind == Token::Kind::kInteger) {
    out->kind = Kind::kItem;
    out->parts.push_back(TRY(parse_number()));
  } else {
    out->name = TRY(tokens_.expect(Token::Kind::kName, "a name or number")).text;
  }
  return finish(std::move(out));
}

Result<ExpressionPtr> ExpressionParser::parse_subscript(ExpressionPtr left) {
  auto out = make(Kind::kItem);
  tokens_.take();
  out->parts.push_back(std::move(left));
  if (!tokens_.at_operator(":")) {
    out->parts.push_back(TRY(parse()));
    if (tokens_.take_operator("]")) return finish(std::move(out));
  } else {
    out->parts.emplace_back();
  }
  out->kind = Kind::kSlice;
  while (out->parts.size() < 4 && tokens_.take_operator(":")) {
    const bool empty = tokens_.at_operator(":") || tokens_.at_operator("]");
    out->parts.push_back(empty ? ExpressionPtr() : TRY(parse()));
  }
  out->parts.resize(4);
  TRY(tokens_.expect_operator("]"));
  return finish(std::move(out));
}

Result<ExpressionPtr> ExpressionParser::parse_call(ExpressionPtr left) {
  auto out = make(Kind::kCall);
  out->parts.push_back(std::move(left));
  out->call = TRY(parse_arguments());
  return finish(std::move(out));
}

Result<std::string> ExpressionParser::parse_dotted_name() {
  std::string name = TRY(tokens_.expect(Token::Kind::kName, "a name")).text;
  while (tokens_.take_operator(".")) name += "." + TRY(tokens_.expect(Token::Kind::kName, "a name")).text;
  return name;
}

Result<ExpressionPtr> ExpressionParser::parse_filter(ExpressionPtr left) {
  auto out = make(Kind::kFilter);
  out->name = TRY(parse_dotted_name());
  if (find_filter(out->name) == nullptr) {
    return tokens_.fail_at(out->offset, "no filter named '" + out->name + "'; accepted: " + filter_names());
  }
  if (left != nullptr) out->parts.push_back(std::move(left));
  if (tokens_.at_operator("(")) out->call = TRY(parse_arguments());
  return finish(std::move(out));
}

Result<ExpressionPtr> ExpressionParser::parse_test(ExpressionPtr left) {
  tokens_.take();
  auto negation = make(Kind::kNot);
  const bool negated = tokens_.take_name("not");
  auto out = make(Kind::kTest);
  out->name = TRY(parse_dotted_name());
  if (find_test(out->name) == nullptr) {
    return tokens_.fail_at(out->offset, "no test named '" + out->name + "'; accepted: " + test_names());
  }
  out->parts.push_back(std::move(left));
  const Token& token = tokens_.current();
  if (tokens_.at_operator("(")) {
    out->call = TRY(parse_arguments());
  } else if (token.kind == Token::Kind::kString || token.kind == Token::Kind::kInteger ||
             token.kind == Token::Kind::kFloat || tokens_.at_operator("[") || tokens_.at_operator("{") ||
             (token.kind == Token::Kind::kName && token.text != "else" && token.text != "or" && token.text != "and")) {
    if (tokens_.at_name("is")) return tokens_.fail("tests cannot be chained with 'is'");
    out->call.positional.push_back(
        TRY(nested([&]() -> Result<ExpressionPtr> { return parse_postfix(TRY(parse_primary()), false); })));
  }
  ExpressionPtr test = TRY(finish(std::move(out)));
  if (!negated) return test;
  negation->parts.push_back(std::move(test));
  return finish(std::move(negation));
}

Result<CallSyntax> ExpressionParser::parse_arguments() {
  CallSyntax out;
  TRY(tokens_.expect_operator("("));
  while (!tokens_.at_operator(")")) {
    const bool after_star = out.star != nullptr || out.star_star != nullptr;
    if (tokens_.at_operator("*") && !after_star) {
      tokens_.take();
      out.star = TRY(parse());
    } else if (tokens_.at_operator("**") && out.star_star == nullptr) {
      tokens_.take();
      out.star_star = TRY(parse());
    } else if (tokens_.current().kind == Token::Kind::kName && tokens_.next().kind == Token::Kind::kOperator &&
               tokens_.next().text == "=") {
      if (out.star_star != nullptr) return tokens_.fail("a keyword argument behind **");
      std::string name = tokens_.take().text;
      tokens_.take();
      for (const auto& [other, value] : out.named) {
        if (other == name) return tokens_.fail("keyword argument '" + name + "' appears twice");
      }
      out.named.emplace_back(std::move(name), TRY(parse()));
    } else {
      if (after_star || !out.named.empty()) return tokens_.fail("a positional argument behind keyword arguments");
      out.positional.push_back(TRY(parse()));
    }
    if (!tokens_.at_operator(")")) TRY(tokens_.expect_operator(","));
  }
  tokens_.take();
  return out;
}

}  // namespace tessera::jinja
