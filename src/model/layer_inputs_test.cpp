// Catches: layers that read another layer's per-layer embeddings. One split has at most 8 results, so a model with more
// layers splits the results again, which makes such a mistake likely.
#include <map>

#include "tessera/model/config/config_test_util.h"
#include "tessera/model/model.h"
#include "tessera/model/test_support.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

constexpr std::int64_t kSize = 16;  // size of a layer's embedding

// Returns, for each result of a split, the column of the original value at which the result begins. If a result is
// split again, the columns of its parts are still counted from the original value.
std::map<ir::ValueId, std::int64_t> first_columns(const ir::Graph& graph) {
  std::map<ir::ValueId, std::int64_t> columns;
  for (const ir::Node& node : graph.nodes) {
    if (node.op != "split") continue;
    const auto outer = columns.find(node.operands[0]);
    std::int64_t column = outer == columns.end() ? 0 : outer->second;
    const auto& sizes = std::get<std::vector<std::int64_t>>(*node.find_attribute("sizes"));
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      columns[node.results[i]] = column;
      column += sizes[i];
    }
  }
  return columns;
}

// Tests up to 8 layers, for which one split suffices, and more than 8. Gemma 4 E2B has 35 layers.
TEST(LayerInputs, EachLayerTakesItsOwnColumns) {
  for (const std::int64_t layers : {1, 2, 8, 9, 35, 70}) {
    SCOPED_TRACE(layers);
    Json json = test::small_config("Gemma4ForCausalLM", R"({"hidden_size_per_layer_input": 16})");
    json.set("num_hidden_layers", layers);
    const ModelConfig config = *ModelConfig::from_json(json, "m/config.json", built_in_families());
    const Result<ModelGraphs> graphs = build_model(config, {}, built_in_ops(), built_in_families());
    ASSERT_TRUE(graphs.ok()) << graphs.status().to_string();
    const ir::Graph& body = graphs->body;
    const std::map<ir::ValueId, std::int64_t> columns = first_columns(body);
    std::vector<std::int64_t> taken;
    for (const ir::Node& node : body.nodes) {
      if (node.op != "mul" || body.value(node.operands[1]).type.shape.back() != ir::Dim(kSize)) continue;
      const auto column = columns.find(node.operands[1]);
      taken.push_back(column == columns.end() ? 0 : column->second);
    }
    ASSERT_EQ(std::ssize(taken), layers);
    for (std::size_t layer = 0; layer < taken.size(); ++layer)
      EXPECT_EQ(taken[layer], static_cast<std::int64_t>(layer) * kSize) << "layer " << layer;
  }
}

}  // namespace
}  // namespace tessera
