#include "tessera/ir/picture_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "tessera/ir/text.h"

namespace tessera::ir {
namespace {

bool exists(const Graph& graph, ValueId id) { return id.value() >= 0 && id.index() < graph.values.size(); }

NodeStyle style_of(const OpDecl* decl, bool in_split_cluster) {
  if (in_split_cluster || (decl != nullptr && decl->split_by_default)) return NodeStyle::kSplit;
  if (decl == nullptr) return NodeStyle::kKernel;
  if (decl->execution == Execution::kView) return NodeStyle::kView;
  if (decl->execution == Execution::kAllocate) return NodeStyle::kAllocate;
  return NodeStyle::kKernel;
}

// Computes which node each value comes from. A node that reads a value depends on the last node that wrote the value's
// memory, directly or through a view.
class FlowBuilder {
 public:
  FlowBuilder(const Graph& graph, const PictureOptions& options) : graph_(graph), options_(options) {
    for (std::size_t i = 0; i < graph.values.size(); ++i) {
      memory_.emplace_back(static_cast<std::int32_t>(i));
      writer_.push_back(graph.values[i].producer);
    }
  }

  Flow build() {
    flow_.labels.resize(graph_.nodes.size() + 1);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) add_node(i);
    for (const ValueId id : graph_.outputs) add_use(graph_.nodes.size(), id, false);
    return std::move(flow_);
  }

 private:
  void add_node(std::size_t index) {
    const Node& node = graph_.nodes[index];
    const int given = index < options_.cluster_of_node.size() ? options_.cluster_of_node[index] : -1;
    const bool clustered = given >= 0 && static_cast<std::size_t>(given) < options_.clusters.size();
    const OpDecl* decl = options_.ops != nullptr ? options_.ops->find(node.op) : nullptr;
    flow_.clusters.push_back(clustered ? given : -1);
    flow_.styles.push_back(style_of(decl, clustered && options_.clusters[static_cast<std::size_t>(given)].is_split));

    const auto written = [&](std::size_t i) { return i < node.mutates.size() && node.mutates[i]; };
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      const ValueId id = node.operands[i];
      const auto first = std::find(node.operands.begin(), node.operands.end(), id) - node.operands.begin();
      if (first == static_cast<std::ptrdiff_t>(i)) add_use(index, id, written(i));
    }
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      if (!written(i) || !exists(graph_, node.operands[i])) continue;
      writer_[memory_[node.operands[i].index()].index()] = NodeId{static_cast<std::int32_t>(index)};
    }
    const bool view = decl != nullptr && decl->execution == Execution::kView && !node.operands.empty() &&
                      !node.results.empty() && exists(graph_, node.operands[0]) && exists(graph_, node.results[0]);
    if (view) memory_[node.results[0].index()] = memory_[node.operands[0].index()];
  }

  void add_use(std::size_t to, ValueId id, bool written) {
    if (!exists(graph_, id)) return;
    const Value& value = graph_.value(id);
    if (value.kind != ValueKind::kResult) {
      flow_.labels[to].push_back({id, written});
      return;
    }
    const NodeId from = std::max(value.producer, writer_[memory_[id.index()].index()]);
    if (from.value() >= 0 && from.index() < graph_.nodes.size() && from.index() != to) {
      flow_.edges.push_back({from.index(), to, id, written});
    }
  }

  const Graph& graph_;
  const PictureOptions& options_;
  std::vector<ValueId> memory_;  // for each value, the value that owns its memory
  std::vector<NodeId> writer_;   // for each value, the last writer of its memory
  Flow flow_;
};

// Returns the length in bytes of the text's first UTF-8 character, or 0 if XML cannot contain it or the UTF-8 is
// invalid.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  std::uint32_t code = first & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  const bool control = code < 0xa0;
  if (code < kLeast[length] || code > 0x10ffff || surrogate || control || (code & 0xfffeu) == 0xfffeu) return 0;
  return length;
}

}  // namespace

Flow flow_of(const Graph& graph, const PictureOptions& options) { return FlowBuilder(graph, options).build(); }

std::string printable(std::string_view text, std::size_t most) {
  std::string out;
  std::size_t last_start = 0;
  for (std::size_t count = 0; !text.empty(); ++count) {
    if (count == most) {
      out.resize(last_start);
      return out + "…";
    }
    last_start = out.size();
    const std::size_t length = character_length(text);
    out += length > 0 ? text.substr(0, length) : "\xef\xbf\xbd";
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::string typed_name(const Graph& graph, ValueId id) {
  if (!exists(graph, id)) return fmt::format("%?{}", id.value());
  const Value& value = graph.value(id);
  return fmt::format("%{}: {}", value.name, value.type.to_string());
}

std::string attributes_text(const Graph& graph, const Node& node) {
  if (node.attributes.empty()) return {};
  Node bare;
  bare.attributes = node.attributes;
  const std::string text = to_text(graph, bare);  // for example "" () {group = 0}
  const std::size_t start = text.find('{') + 1;
  return text.substr(start, text.size() - start - 1);
}

}  // namespace tessera::ir
