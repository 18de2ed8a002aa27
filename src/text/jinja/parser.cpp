#include "tessera/text/jinja/parser.h"

#include "tessera/text/jinja/expression_parser.h"
#include "tessera/text/unicode.h"

namespace tessera::jinja {
namespace {

using StatementPtr = std::unique_ptr<const Statement>;
using Words = std::initializer_list<std::string_view>;

class StatementParser {
 public:
  explicit StatementParser(TokenStream& tokens) : tokens_(tokens), expressions_(tokens) {}

  // Parses statements up to a tag that begins with one of the words `until` ("endif"), or up to the end of the template
  // if there are no words. The word that was found remains the current token.
  Result<Body> parse_body(Words until) {
    if (++depth_ > kMaxSyntaxDepth) return tokens_.fail("blocks nested deeper than " + std::to_string(kMaxSyntaxDepth));
    Body body;
    for (;;) {
      const Token& token = tokens_.current();
      if (token.kind == Token::Kind::kEnd) {
        if (until.size() > 0) return tokens_.fail("unexpected end of template; expected " + words(until));
        break;
      }
      if (token.kind == Token::Kind::kText) {
        auto text = make(Statement::Kind::kText);
        text->name = tokens_.take().text;
        body.push_back(std::move(text));
      } else if (token.kind == Token::Kind::kPrintBegin) {
        auto print = make(Statement::Kind::kPrint);
        tokens_.take();
        print->expressions.push_back(TRY(expressions_.parse_tuple()));
        TRY(tokens_.expect(Token::Kind::kPrintEnd, "end of print statement"));
        body.push_back(std::move(print));
      } else {
        tokens_.take();
        for (const std::string_view word : until) {
          if (!tokens_.at_name(word)) continue;
          --depth_;
          return body;
        }
        body.push_back(TRY(parse_statement(until)));
        TRY(tokens_.expect(Token::Kind::kBlockEnd, "end of statement block"));
      }
    }
    --depth_;
    return body;
  }

 private:
  std::unique_ptr<Statement> make(Statement::Kind kind) const {
    return std::make_unique<Statement>(Statement{.kind = kind, .offset = tokens_.current().offset});
  }

  static std::string words(Words list) {
    std::string out;
    for (const std::string_view word : list) {
      out += (out.empty() ? "'" : " or '");
      out += word;
      out += '\'';
    }
    return out;
  }

  // Parses a body up to the word `end`, and consumes that word.
  Result<Body> parse_body_and_end(std::string_view end) {
    TRY(tokens_.expect(Token::Kind::kBlockEnd, "end of statement block"));
    Body body = TRY(parse_body({end}));
    tokens_.take();
    return body;
  }

  Result<StatementPtr> parse_statement(Words until) {
    const Token& token = tokens_.current();
    if (token.kind != Token::Kind::kName) return tokens_.fail("tag name expected");
    const std::string name = token.text;
    if (name == "for") return parse_for();
    if (name == "if") return parse_if();
    if (name == "set") return parse_set();
    if (name == "macro") return parse_macro();
    if (name == "call") return parse_call();
    if (name == "filter") return parse_filter();
    if (name == "with") return parse_with();
    if (name == "print") return parse_print();
    if (name == "break" || name == "continue") return parse_jump(name == "break");
    if (name == "generation") {
      auto block = make(Statement::Kind::kBlock);
      tokens_.take();
      block->bodies.push_back(TRY(parse_body_and_end("endgeneration")));
      return StatementPtr(std::move(block));
    }
    for (const std::string_view known :
         {"block", "extends", "include", "import", "from", "autoescape", "do", "trans"}) {
      if (name == known) return tokens_.fail_unimplemented("the tag '" + name + "' is not supported");
    }
    std::string message = "unknown tag '" + name + "'";
    if (until.size() > 0) message += "; expected " + words(until);
    return tokens_.fail(std::move(message));
  }

  Result<StatementPtr> parse_for() {
    auto loop = make(Statement::Kind::kFor);
    tokens_.take();
    loop->targets.push_back(TRY(parse_target(false)));
    if (!tokens_.take_name("in")) return tokens_.fail("expected 'in'");
    loop->expressions.push_back(TRY(expressions_.parse_tuple(false)));
    loop->expressions.emplace_back();
    if (tokens_.take_name("if")) loop->expressions.back() = TRY(expressions_.parse());
    loop->recursive = tokens_.take_name("recursive");
    TRY(tokens_.expect(Token::Kind::kBlockEnd, "end of statement block"));
    ++loops_;
    Result<Body> body = parse_body({"endfor", "else"});
    --loops_;
    loop->bodies.push_back(TRY(std::move(body)));
    loop->bodies.emplace_back();
    if (tokens_.take_name("else")) {
      loop->bodies.back() = TRY(parse_body_and_end("endfor"));
    } else {
      tokens_.take();
    }
    return StatementPtr(std::move(loop));
  }

  Result<StatementPtr> parse_if() {
    auto out = make(Statement::Kind::kIf);
    do {
      tokens_.take();
      out->expressions.push_back(TRY(expressions_.parse_tuple(false)));
      TRY(tokens_.expect(Token::Kind::kBlockEnd, "end of statement block"));
      out->bodies.push_back(TRY(parse_body({"elif", "else", "endif"})));
    } while (tokens_.at_name("elif"));
    out->bodies.emplace_back();
    if (tokens_.take_name("else")) {
      out->bodies.back() = TRY(parse_body_and_end("endif"));
    } else {
      tokens_.take();
    }
    return StatementPtr(std::move(out));
  }

  Result<StatementPtr> parse_set() {
    auto set = make(Statement::Kind::kSet);
    tokens_.take();
    set->targets.push_back(TRY(parse_target(true)));
    if (tokens_.take_operator("=")) {
      set->expressions.push_back(TRY(expressions_.parse_tuple()));
      return StatementPtr(std::move(set));
    }
    set->kind = Statement::Kind::kSetBlock;
    set->expressions.emplace_back();
    if (tokens_.at_operator("|")) set->expressions.back() = TRY(expressions_.parse_block_filters(false));
    set->bodies.push_back(TRY(parse_body_and_end("endset")));
    return StatementPtr(std::move(set));
  }

  // Parses the body of a macro or caller. A `break` in the body cannot leave a loop around the macro or caller.
  Result<Body> parse_callable_body(std::string_view end, Signature& signature) {
    const int outer_loops = std::exchange(loops_, 0);
    tokens_.begin_signature(signature);
    Result<Body> body = parse_body_and_end(end);
    tokens_.end_signature();
    loops_ = outer_loops;
    return body;
  }

  Result<StatementPtr> parse_macro() {
    auto macro = make(Statement::Kind::kMacro);
    tokens_.take();
    macro->name = TRY(tokens_.expect(Token::Kind::kName, "a name")).text;
    TRY(parse_signature(macro->signature));
    macro->bodies.push_back(TRY(parse_callable_body("endmacro", macro->signature)));
    return StatementPtr(std::move(macro));
  }

  Result<StatementPtr> parse_call() {
    auto call = make(Statement::Kind::kCallBlock);
    tokens_.take();
    if (tokens_.at_operator("(")) TRY(parse_signature(call->signature));
    call->expressions.push_back(TRY(expressions_.parse()));
    if (call->expressions[0]->kind != Expression::Kind::kCall) return tokens_.fail("expected a call");
    call->bodies.push_back(TRY(parse_callable_body("endcall", call->signature)));
    return StatementPtr(std::move(call));
  }

  Status parse_signature(Signature& signature) {
    TRY(tokens_.expect_operator("("));
    while (!tokens_.at_operator(")")) {
      if (!signature.names.empty()) TRY(tokens_.expect_operator(","));
      signature.names.push_back(TRY(tokens_.expect(Token::Kind::kName, "a name")).text);
      if (tokens_.take_operator("=")) {
        signature.defaults.push_back(TRY(expressions_.parse()));
      } else if (!signature.defaults.empty()) {
        return tokens_.fail("non-default argument follows default argument");
      }
    }
    tokens_.take();
    return ok_status();
  }

  Result<StatementPtr> parse_filter() {
    auto block = make(Statement::Kind::kFilterBlock);
    tokens_.take();
    block->expressions.push_back(TRY(expressions_.parse_block_filters(true)));
    block->bodies.push_back(TRY(parse_body_and_end("endfilter")));
    return StatementPtr(std::move(block));
  }

  Result<StatementPtr> parse_with() {
    auto with = make(Statement::Kind::kWith);
    tokens_.take();
    while (tokens_.current().kind != Token::Kind::kBlockEnd) {
      if (!with->targets.empty()) TRY(tokens_.expect_operator(","));
      with->targets.push_back(TRY(parse_single_target(false)));
      TRY(tokens_.expect_operator("="));
      with->expressions.push_back(TRY(expressions_.parse()));
    }
    with->bodies.push_back(TRY(parse_body_and_end("endwith")));
    return StatementPtr(std::move(with));
  }

  Result<StatementPtr> parse_print() {
    auto print = make(Statement::Kind::kPrint);
    tokens_.take();
    while (tokens_.current().kind != Token::Kind::kBlockEnd) {
      if (!print->expressions.empty()) TRY(tokens_.expect_operator(","));
      print->expressions.push_back(TRY(expressions_.parse()));
    }
    return StatementPtr(std::move(print));
  }

  Result<StatementPtr> parse_jump(bool is_break) {
    auto jump = make(is_break ? Statement::Kind::kBreak : Statement::Kind::kContinue);
    if (loops_ == 0) return tokens_.fail(std::string(is_break ? "'break'" : "'continue'") + " outside of a loop");
    tokens_.take();
    return StatementPtr(std::move(jump));
  }

  // Parses one target, or several separated by commas.
  Result<Target> parse_target(bool with_member) {
    Target first = TRY(parse_single_target(with_member));
    if (!tokens_.at_operator(",")) return first;
    Target tuple{.kind = Target::Kind::kTuple, .offset = first.offset};
    tuple.parts.push_back(std::move(first));
    while (tokens_.take_operator(",")) {
      if (tokens_.at_operator("=") || tokens_.at_operator(")") || tokens_.at_name("in") ||
          tokens_.current().kind == Token::Kind::kBlockEnd) {
        break;
      }
      tuple.parts.push_back(TRY(parse_single_target(with_member)));
    }
    return tuple;
  }

  Result<Target> parse_single_target(bool with_member) {
    const std::size_t offset = tokens_.current().offset;
    if (tokens_.take_operator("(")) {
      if (++depth_ > kMaxSyntaxDepth) return tokens_.fail("nested deeper than " + std::to_string(kMaxSyntaxDepth));
      Target inner = TRY(parse_target(with_member));
      --depth_;
      TRY(tokens_.expect_operator(")"));
      return inner;
    }
    Target target{.kind = Target::Kind::kName, .offset = offset};
    target.name = TRY(tokens_.expect(Token::Kind::kName, "a name to assign to")).text;
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (target.name == constant) return tokens_.fail_at(offset, "can't assign to '" + target.name + "'");
    }
    if (with_member && tokens_.take_operator(".")) {
      target.kind = Target::Kind::kMember;
      target.member = TRY(tokens_.expect(Token::Kind::kName, "a name")).text;
    }
    return target;
  }

  TokenStream& tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;  // number of loops around the current statement inside the current macro
};

}  // namespace

Result<std::unique_ptr<const Program>> parse_template(std::string source, std::string name) {
  if (const std::size_t fault = find_invalid_utf8(source); fault != std::string::npos) {
    return invalid_argument(name + ": byte " + std::to_string(fault) + " is not UTF-8");
  }
  auto program = std::make_unique<Program>();
  program->source = {std::move(name), normalize_newlines(source)};
  TokenStream tokens(program->source, TRY(tokenize(program->source)));
  program->body = TRY(StatementParser(tokens).parse_body({}));
  return std::unique_ptr<const Program>(std::move(program));
}

}  // namespace tessera::jinja
