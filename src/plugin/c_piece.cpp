#include "tessera/plugin/c_piece.h"

#include <algorithm>

#include "tessera/ir/text.h"
#include "tessera/plugin/c_values.h"

namespace tessera::plugin {

Result<CPiece> CPiece::create(const ir::Graph& piece, const std::string& device, bool deterministic) {
  auto data = std::make_unique<Data>();
  data->text = ir::to_text(piece);
  for (std::size_t i = 0; i < piece.values.size(); ++i) {
    const ir::Value& value = piece.values[i];
    const bool is_output = std::find(piece.outputs.begin(), piece.outputs.end(),
                                     ir::ValueId(static_cast<std::int32_t>(i))) != piece.outputs.end();
    const tessera_plugin_type type = TRY(to_c(value.type));
    data->values.push_back({.name = value.name.c_str(),
                            .type = type,
                            .is_result = value.kind == ir::ValueKind::kResult ? 1 : 0,
                            .is_output = is_output ? 1 : 0});
  }
  data->of_nodes.reserve(piece.nodes.size());  // reserved, so that the addresses of the lists stay valid
  for (const ir::Node& node : piece.nodes) {
    Node& of = data->of_nodes.emplace_back();
    of.attributes = to_c(node.attributes);
    for (const ir::ValueId value : node.operands) of.operands.push_back(value.value());
    for (const bool mutated : node.mutates) of.mutates.push_back(mutated ? 1 : 0);
    for (const ir::ValueId value : node.results) of.results.push_back(value.value());
    data->nodes.push_back({.op = node.op.c_str(),
                           .attributes = of.attributes.data(),
                           .num_attributes = of.attributes.size(),
                           .operands = of.operands.data(),
                           .num_operands = of.operands.size(),
                           .mutates = of.mutates.data(),
                           .results = of.results.data(),
                           .num_results = of.results.size()});
  }
  data->piece = {.size = sizeof(data->piece),
                 .text = data->text.c_str(),
                 .values = data->values.data(),
                 .num_values = data->values.size(),
                 .nodes = data->nodes.data(),
                 .num_nodes = data->nodes.size(),
                 .device = device.c_str(),
                 .deterministic = deterministic ? 1 : 0};
  return CPiece(std::move(data));
}

}  // namespace tessera::plugin
