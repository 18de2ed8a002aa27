#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tessera/base/nearest.h"
#include "tessera/ir/builder.h"
#include "tessera/ir/text.h"
#include "tessera/ir/text_lexer.h"

namespace tessera::ir {
namespace {

using Kind = Token::Kind;

// A result of a node as it is written in the text, before the node is checked.
struct ResultText {
  Token name;
  std::optional<Type> type;
};

class Parser {
 public:
  Parser(std::string_view text, const OpTable* ops) : lexer_(text), ops_(ops) {}

  Result<Graph> parse() {
    TRY(advance());
    TRY(expect_word("graph"));
    graph_.name = TRY(expect(Kind::kGraphName, "the graph's name, as in @llama")).text;
    TRY(expect_punctuation("{"));
    while (!is_word_token("return")) TRY(statement());
    TRY(advance());
    if (token_.kind == Kind::kValue) {
      do {
        graph_.outputs.push_back(TRY(used_value()));
      } while (TRY(accept(",")));
    }
    TRY(expect_punctuation("}"));
    if (token_.kind != Kind::kEnd) return refuse("the end of the text after the graph's '}'");
    return std::move(graph_);
  }

 private:
  // Reads the next token into token_.
  Status advance() {
    token_ = TRY(lexer_.next());
    return ok_status();
  }
  Status refuse(std::string_view expected) const {
    return lexer_.error_at(token_.offset, fmt::format("found {}, expected {}", shown(token_), expected));
  }
  bool is_punctuation(std::string_view p) const { return token_.kind == Kind::kPunctuation && token_.text == p; }
  bool is_word_token(std::string_view word) const { return token_.kind == Kind::kWord && token_.text == word; }
  Result<bool> accept(std::string_view punctuation) {
    if (!is_punctuation(punctuation)) return false;
    TRY(advance());
    return true;
  }
  Status expect_punctuation(std::string_view p) {
    return is_punctuation(p) ? advance() : refuse(fmt::format("'{}'", p));
  }
  Status expect_word(std::string_view word) {
    return is_word_token(word) ? advance() : refuse(fmt::format("'{}'", word));
  }
  Result<Token> expect(Kind kind, std::string_view what) {
    if (token_.kind != kind) return refuse(what);
    Token taken = std::move(token_);
    TRY(advance());
    return taken;
  }

  Status statement() {
    if (is_word_token("group")) return group();
    if (is_word_token("input")) return declaration(ValueKind::kInput, graph_.inputs);
    if (is_word_token("weight")) return declaration(ValueKind::kWeight, graph_.weights);
    if (is_word_token("state")) return declaration(ValueKind::kState, graph_.states);
    if (token_.kind == Kind::kValue || token_.kind == Kind::kWord || token_.kind == Kind::kString) return node();
    return refuse("group, input, weight, state, a node or return");
  }

  Status group() {
    TRY(advance());
    CacheGroup group;
    group.name = TRY(expect(Kind::kString, "the group's name in quotes")).text;
    group.kind = TRY(group_kind());
    if (group.kind == CacheGroup::Kind::kWindow) group.window = TRY(integer());
    TRY(expect_word("layers"));
    group.layers = TRY(integers());
    graph_.cache_groups.push_back(std::move(group));
    return ok_status();
  }

  Result<CacheGroup::Kind> group_kind() {
    using enum CacheGroup::Kind;
    for (const CacheGroup::Kind kind : {kPaged, kWindow, kLatent, kState}) {
      if (!is_word_token(cache_group_kind_name(kind))) continue;
      TRY(advance());
      return kind;
    }
    return refuse("'paged', 'latent', 'state', or 'window' and a number of tokens");
  }

  Status declaration(ValueKind kind, std::vector<ValueId>& list) {
    TRY(advance());
    const Token name = TRY(expect(Kind::kValue, "a value, as in %x"));
    TRY(expect_punctuation(":"));
    Type value_type = TRY(type());
    list.push_back(TRY(define(name, std::move(value_type), kind, kNoNode)));
    return ok_status();
  }

  Status node() {
    std::vector<ResultText> results;
    if (token_.kind == Kind::kValue) {
      results = TRY(node_results());
      TRY(expect_punctuation("="));
    }
    if (token_.kind != Kind::kWord && token_.kind != Kind::kString) return refuse("an operator");
    if (token_.kind == Kind::kWord && is_keyword(token_.text)) return refuse("an operator; a keyword as one is quoted");
    const Token op = token_;
    TRY(advance());
    Node node;
    node.op = op.text;
    TRY(node_operands(node));
    if (TRY(accept("{"))) TRY(node_attributes(node));
    TRY(check(op, node, results));

    const NodeId id{static_cast<std::int32_t>(graph_.nodes.size())};
    for (ResultText& result : results) {
      node.results.push_back(TRY(define(result.name, *std::move(result.type), ValueKind::kResult, id)));
    }
    graph_.nodes.push_back(std::move(node));
    return ok_status();
  }

  Result<std::vector<ResultText>> node_results() {
    std::vector<ResultText> results;
    do {
      ResultText result{.name = TRY(expect(Kind::kValue, "a value, as in %x")), .type = std::nullopt};
      if (TRY(accept(":"))) result.type = TRY(type());
      if (!result.type && ops_ == nullptr) return refuse("':' and the result's type");
      results.push_back(std::move(result));
    } while (TRY(accept(",")));
    return results;
  }

  Status node_operands(Node& node) {
    TRY(expect_punctuation("("));
    if (TRY(accept(")"))) return ok_status();
    do {
      const bool mutates = is_word_token("mut");
      if (mutates) TRY(advance());
      node.operands.push_back(TRY(used_value()));
      node.mutates.push_back(mutates);
    } while (TRY(accept(",")));
    return is_punctuation(")") ? advance() : refuse("',' or ')'");
  }

  Status node_attributes(Node& node) {
    if (TRY(accept("}"))) return ok_status();
    std::unordered_set<std::string> names;
    do {
      if (token_.kind != Kind::kWord && token_.kind != Kind::kString) return refuse("an attribute's name");
      if (!names.insert(token_.text).second) return refuse("each attribute once");
      std::string name = token_.text;
      TRY(advance());
      TRY(expect_punctuation("="));
      node.attributes.emplace_back(std::move(name), TRY(attribute()));
    } while (TRY(accept(",")));
    std::sort(node.attributes.begin(), node.attributes.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    return is_punctuation("}") ? advance() : refuse("',' or '}'");
  }

  // Checks a node against its declaration and fills in omitted types. Does nothing if there are no declarations,
  // because in that case the text must state all types.
  Status check(const Token& op, const Node& node, std::vector<ResultText>& results) const {
    if (ops_ == nullptr) return ok_status();
    const auto refuse_node = [&](const Status& error) {
      return lexer_.error_at(op.offset, fmt::format("operator '{}': {}", op.text, error.message()));
    };
    const Result<const OpDecl*> decl = ops_->get(node.op);
    if (!decl.ok()) return lexer_.error_at(op.offset, decl.status().message());
    const Result<std::vector<Type>> types = check_node(**decl, graph_, node);
    if (!types.ok()) return refuse_node(types.status());
    if (types->size() != results.size()) {
      return refuse_node(
          invalid_argument(fmt::format("it has {} results, {} are named", types->size(), results.size())));
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      std::optional<Type>& written = results[i].type;
      if (written && *written != (*types)[i]) {
        return lexer_.error_at(results[i].name.offset,
                               fmt::format("found type {} for %{}, expected {} from '{}'", written->to_string(),
                                           results[i].name.text, (*types)[i].to_string(), op.text));
      }
      written = (*types)[i];
    }
    return ok_status();
  }

  Result<Type> type() {
    const std::optional<DType> dtype = token_.kind == Kind::kWord ? parse_dtype(token_.text) : std::nullopt;
    if (!dtype) return refuse("a type, as in bf16[T, 64]; f32, f16, bf16, i32, i64 and u8 are accepted");
    TRY(advance());
    if (!is_punctuation("[")) return refuse("'[' and the type's dimensions");
    Type type{.dtype = *dtype, .shape = {}};
    for (bool first = true; first || is_punctuation(","); first = false) {
      const Token dimension = TRY(lexer_.dimension());
      TRY(advance());
      if (first && dimension.text.empty() && is_punctuation("]")) break;
      if (dimension.text.empty()) return refuse("a dimension, as in T, 64 or (2*T + 8)/4");
      Result<Dim> dim = Dim::parse(dimension.text);
      if (!dim.ok()) return lexer_.error_at(dimension.offset, dim.status().message());
      type.shape.push_back(*dim);
    }
    if (!is_punctuation("]")) return refuse("',' or ']'");
    TRY(advance());
    return type;
  }

  Result<Attribute> attribute() {
    const bool word = token_.kind == Kind::kWord;
    Attribute value;
    if (word && (token_.text == "true" || token_.text == "false")) {
      value = token_.text == "true";
    } else if (token_.kind == Kind::kString) {
      value = token_.text;
    } else if (is_punctuation("[")) {
      return Attribute(TRY(integers()));
    } else if (token_.kind == Kind::kNumber && token_.text.find_first_of(".eEn") == std::string::npos) {
      return Attribute(TRY(integer()));
    } else if (token_.kind == Kind::kNumber || (word && (token_.text == "inf" || token_.text == "nan"))) {
      value = TRY(floating_point());
    } else {
      return refuse("an attribute's value: true, false, a number, a string or [integers]");
    }
    TRY(advance());
    return value;
  }

  Result<double> floating_point() const {
    if (token_.text == "inf") return std::numeric_limits<double>::infinity();
    if (token_.text == "-inf") return -std::numeric_limits<double>::infinity();
    if (token_.text == "nan") return std::numeric_limits<double>::quiet_NaN();
    double value = 0;
    const char* end = token_.text.data() + token_.text.size();
    const auto [rest, error] = std::from_chars(token_.text.data(), end, value);
    if (error != std::errc() || rest != end) return refuse("a double, as in 1e-06");
    return value;
  }

  Result<std::int64_t> integer() {
    std::int64_t value = 0;
    const char* end = token_.text.data() + token_.text.size();
    const auto [rest, error] = std::from_chars(token_.text.data(), end, value);
    if (token_.kind != Kind::kNumber || error != std::errc() || rest != end) return refuse("an integer below 2^63");
    TRY(advance());
    return value;
  }

  Result<std::vector<std::int64_t>> integers() {
    TRY(expect_punctuation("["));
    std::vector<std::int64_t> values;
    if (TRY(accept("]"))) return values;
    do {
      values.push_back(TRY(integer()));
    } while (TRY(accept(",")));
    if (!is_punctuation("]")) return refuse("',' or ']'");
    TRY(advance());
    return values;
  }

  Result<ValueId> define(const Token& name, Type type, ValueKind kind, NodeId producer) {
    const ValueId id{static_cast<std::int32_t>(graph_.values.size())};
    if (!values_.emplace(name.text, id).second) {
      return lexer_.error_at(name.offset, fmt::format("{} is defined already", shown(name)));
    }
    graph_.values.push_back({name.text, std::move(type), kind, producer});
    return id;
  }

  Result<ValueId> used_value() {
    const Token name = TRY(expect(Kind::kValue, "a value, as in %x"));
    const auto found = values_.find(name.text);
    if (found != values_.end()) return found->second;
    std::vector<std::string_view> names;
    names.reserve(graph_.values.size());
    for (const Value& value : graph_.values) names.push_back(value.name);
    const std::vector<std::string> near = nearest_names(name.text, names);
    const std::string hint = near.empty() ? "" : fmt::format("; near: %{}", fmt::join(near, ", %"));
    return lexer_.error_at(name.offset, fmt::format("{} is not defined before its use{}", shown(name), hint));
  }

  Lexer lexer_;
  const OpTable* ops_;
  Token token_;
  Graph graph_;
  std::unordered_map<std::string, ValueId> values_;
};

}  // namespace

Result<Graph> parse_graph(std::string_view text, const OpTable* ops) {
  if (text.size() > kMaxGraphTextBytes) {
    return invalid_argument(fmt::format("graph text of {} bytes; {} are accepted", text.size(), kMaxGraphTextBytes));
  }
  return Parser(text, ops).parse();
}

}  // namespace tessera::ir
