#include "tessera/cli/inspect/shown_graphs.h"

#include <fmt/format.h>

#include <type_traits>
#include <variant>

#include "tessera/base/json.h"

namespace tessera::cli {
namespace {

Json names_json(const ir::Graph& graph, const std::vector<ir::ValueId>& values) {
  Json names = Json::array();
  for (const ir::ValueId id : values) names.push_back(graph.value(id).name);
  return names;
}

Json attribute_json(const ir::Attribute& attribute) {
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&attribute))
    return Json(Json::Array(list->begin(), list->end()));
  Json value;
  std::visit(
      [&](const auto& v) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(v)>, std::vector<std::int64_t>>) value = Json(v);
      },
      attribute);
  return value;
}

Json node_json(const ir::Graph& graph, const ir::Node& node) {
  Json mutated = Json::array();
  for (std::size_t i = 0; i < node.operands.size(); ++i)
    if (node.mutates[i]) mutated.push_back(graph.value(node.operands[i]).name);
  Json attributes = Json::object();
  for (const auto& [name, attribute] : node.attributes) attributes.set(name, attribute_json(attribute));
  Json json = Json::object();
  json.set("op", node.op).set("operands", names_json(graph, node.operands)).set("mutated", std::move(mutated));
  json.set("results", names_json(graph, node.results)).set("attributes", std::move(attributes));
  return json;
}

Json graph_json(const NamedGraph& named) {
  const ir::Graph& graph = named.graph;
  Json values = Json::array();
  for (const ir::Value& value : graph.values) {
    Json json = Json::object();
    json.set("name", value.name).set("kind", ir::value_kind_name(value.kind)).set("type", value.type.to_string());
    values.push_back(std::move(json));
  }
  Json nodes = Json::array();
  for (const ir::Node& node : graph.nodes) nodes.push_back(node_json(graph, node));
  for (std::size_t i = 0; i < named.picture.cluster_of_node.size(); ++i) {
    const int cluster = named.picture.cluster_of_node[i];
    if (cluster >= 0) nodes.as_array()[i].set("part", named.picture.clusters[static_cast<std::size_t>(cluster)].title);
  }
  Json json = Json::object();
  json.set("graph", named.name).set("values", std::move(values)).set("nodes", std::move(nodes));
  json.set("outputs", names_json(graph, graph.outputs));
  return json;
}

std::string json_text(std::span<const NamedGraph* const> graphs) {
  if (graphs.size() == 1) return graph_json(*graphs[0]).dump() + "\n";
  Json all = Json::array();
  for (const NamedGraph* graph : graphs) all.push_back(graph_json(*graph));
  return all.dump() + "\n";
}

}  // namespace

Result<std::string> shown_graphs(std::span<const NamedGraph* const> graphs, ExplainFormat format) {
  if (format == ExplainFormat::kJson) return json_text(graphs);
  if (format == ExplainFormat::kSvg) {
    if (graphs.size() == 1) return ir::to_svg(graphs[0]->graph, graphs[0]->picture);
    std::string names;
    for (const NamedGraph* graph : graphs) names += (names.empty() ? "" : ", ") + graph->name;
    return invalid_argument(fmt::format("--graph: a picture shows one of {}", names));
  }
  std::string text;
  for (const NamedGraph* graph : graphs) {
    if (graphs.size() > 1) text += fmt::format("{}// {}\n", text.empty() ? "" : "\n", graph->name);
    text += format == ExplainFormat::kDot ? ir::to_dot(graph->graph, graph->picture) : graph->text;
  }
  return text;
}

}  // namespace tessera::cli
