#include "tessera/text/jinja/expression_parser.h"
#include "tessera/text/jinja/filters.h"
#include "tessera/text/jinja/value_tests.h"

namespace tessera::jinja {

Result<ExpressionPtr> ExpressionParser::parse_postfix(ExpressionPtr left, bool with_filters) {
  bool filtered = false;  // true after a filter or test; then only filters, tests and calls may follow
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
