// The printer of the text form. text_parser.cpp is its counterpart.
#include "tessera/ir/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/ir/text_lexer.h"

namespace tessera::ir {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\t': out += "\\t"; break;
      default:
        if (byte < 0x20 || byte == 0x7f) {
          out += fmt::format("\\x{:02x}", byte);
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

std::string name_text(std::string_view name) {
  const bool bare = !name.empty() && std::all_of(name.begin(), name.end(), is_name_char);
  return bare ? std::string(name) : quoted(name);
}

std::string word_text(std::string_view word) { return is_word(word) ? std::string(word) : quoted(word); }

std::string op_text(std::string_view op) { return is_keyword(op) ? quoted(op) : word_text(op); }

std::string double_text(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);  // the shortest text that reads back exactly
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string integers_text(const std::vector<std::int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

struct AttributeText {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(std::int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const { return double_text(v); }
  std::string operator()(const std::string& v) const { return quoted(v); }
  std::string operator()(const std::vector<std::int64_t>& v) const { return integers_text(v); }
};

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph) {}

  std::string graph() const {
    std::string out = fmt::format("graph @{} {{\n", name_text(graph_.name));
    for (const CacheGroup& group : graph_.cache_groups) {
      const bool windowed = group.kind == CacheGroup::Kind::kWindow;
      out += fmt::format("  group {} {}{} layers {}\n", quoted(group.name), cache_group_kind_name(group.kind),
                         windowed ? fmt::format(" {}", group.window) : "", integers_text(group.layers));
    }
    for (const ValueId id : graph_.inputs) out += fmt::format("  input {}\n", typed(id));
    for (const ValueId id : graph_.weights) out += fmt::format("  weight {}\n", typed(id));
    for (const ValueId id : graph_.states) out += fmt::format("  state {}\n", typed(id));
    for (const Node& n : graph_.nodes) out += fmt::format("  {}\n", node(n));
    out += "  return";
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      out += fmt::format("{} {}", i > 0 ? "," : "", value(graph_.outputs[i]));
    }
    return out + "\n}\n";
  }

  std::string node(const Node& n) const {
    std::string out;
    for (std::size_t i = 0; i < n.results.size(); ++i) out += (i > 0 ? ", " : "") + typed(n.results[i]);
    if (!n.results.empty()) out += " = ";
    out += op_text(n.op) + "(";
    for (std::size_t i = 0; i < n.operands.size(); ++i) {
      if (i > 0) out += ", ";
      if (i < n.mutates.size() && n.mutates[i]) out += "mut ";
      out += value(n.operands[i]);
    }
    out += ")";
    if (n.attributes.empty()) return out;
    out += " {";
    for (std::size_t i = 0; i < n.attributes.size(); ++i) {
      const auto& [name, attribute] = n.attributes[i];
      out += fmt::format("{}{} = {}", i > 0 ? ", " : "", word_text(name), std::visit(AttributeText{}, attribute));
    }
    return out + "}";
  }

 private:
  const Value* find(ValueId id) const {
    return id.value() >= 0 && id.index() < graph_.values.size() ? &graph_.value(id) : nullptr;
  }
  std::string value(ValueId id) const {
    const Value* found = find(id);
    return found != nullptr ? "%" + name_text(found->name) : fmt::format("%?{}", id.value());
  }
  std::string typed(ValueId id) const {
    const Value* found = find(id);
    return found != nullptr ? fmt::format("{}: {}", value(id), found->type.to_string()) : value(id);
  }

  const Graph& graph_;
};

}  // namespace

std::string to_text(const Graph& graph) { return Printer(graph).graph(); }

std::string to_text(const Graph& graph, const Node& node) { return Printer(graph).node(node); }

}  // namespace tessera::ir
