// Catches: native forms that compute something else than the operator they stand for, in another order of
// results, or with attributes lost; and native forms that nothing compares.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tessera/ops/registry.h"
#include "tessera/ops/row_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using testing::HostTensor;

struct Case {
  std::string op;
  std::vector<std::vector<std::int64_t>> operands;
  ir::Attributes attributes;
};

std::vector<Case> cases() {
  const std::int64_t rows = 5;
  const std::int64_t cols = 96;
  return {
      {"add_rms_norm", {{rows, cols}, {rows, cols}, {cols}}, {{"eps", 1e-5}}},
      {"gelu_mul", {{rows, cols}}, {}},
      {"gelu_mul", {{rows, cols}}, {{"tanh", false}}},
      {"head_norm", {{rows, cols}, {24}}, {{"eps", 1e-5}}},
      {"silu_mul", {{rows, cols}}, {}},
  };
}

// The graph that consists of the operator's native form alone.
Result<ir::Graph> native_form(const ir::OpDecl& decl, const std::vector<HostTensor>& operands,
                              const ir::Attributes& attributes) {
  ir::GraphBuilder b("native", op_table());
  std::vector<ir::ValueId> ids;
  for (const HostTensor& t : operands) ids.push_back(b.input("x" + std::to_string(ids.size()), t.type()));
  const ir::Node node = testing::make_node(decl, operands.size(), attributes);
  for (const ir::ValueId id : TRY(decl.decompose(b, node, ids))) b.output(id);
  return b.finish();
}

// Runs a graph's nodes one by one.
std::vector<HostTensor> run(const ir::Graph& graph, const std::vector<HostTensor>& inputs) {
  std::map<ir::ValueId, HostTensor> values;
  for (std::size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i]] = inputs[i];
  for (const ir::Node& node : graph.nodes) {
    std::vector<HostTensor> operands;
    for (const ir::ValueId id : node.operands) operands.push_back(values.at(id));
    const ir::OpDecl& decl = *op_table().find(node.op);
    std::vector<HostTensor> results;
    if (decl.execution == ir::Execution::kView) {
      HostTensor view = operands[0];
      view.dims = ir::evaluate(graph.value(node.results[0]).type.shape, {}).value();
      results.push_back(std::move(view));
    } else {
      results = testing::run_op(decl, *cpu_kernels().get(node.op).value(), operands, node.attributes).results;
    }
    for (std::size_t i = 0; i < node.results.size(); ++i) values[node.results[i]] = std::move(results[i]);
  }
  std::vector<HostTensor> outputs;
  for (const ir::ValueId id : graph.outputs) outputs.push_back(values.at(id));
  return outputs;
}

TEST(NativeForm, ComputesWhatTheKernelDoes) {
  for (const Case& c : cases()) {
    const ir::OpDecl& decl = *op_table().find(c.op);
    for (const DType dtype : testing::kFloatingDTypes) {
      std::vector<HostTensor> operands;
      for (const auto& dims : c.operands)
        operands.push_back(testing::random_tensor(dtype, dims, static_cast<std::uint32_t>(operands.size()), -3, 3));
      const Result<ir::Graph> graph = native_form(decl, operands, c.attributes);
      ASSERT_TRUE(graph.ok()) << graph.status().to_string();
      const std::vector<HostTensor> native = run(*graph, operands);
      const auto fused = testing::run_op(decl, *cpu_kernels().get(c.op).value(), operands, c.attributes);
      ASSERT_EQ(native.size(), fused.results.size()) << c.op;
      for (std::size_t i = 0; i < native.size(); ++i) {
        ASSERT_EQ(native[i].type(), fused.results[i].type()) << c.op;
        testing::expect_close(fused.results[i], native[i].values(), testing::tolerance(dtype),
                              c.op + " against its native form");
      }
    }
  }
}

// Also with a symbol for the rows, as in a model.
TEST(NativeForm, KeepsSymbols) {
  for (const Case& c : cases()) {
    const ir::OpDecl& decl = *op_table().find(c.op);
    ir::GraphBuilder b("native", op_table());
    std::vector<ir::ValueId> ids;
    std::vector<ir::Type> types;
    for (const auto& dims : c.operands) {
      ir::Type type{DType::kBFloat16, ir::Shape(dims.begin(), dims.end())};
      if (dims.size() == 2) type.shape[0] = ir::Symbol::kTokens;
      types.push_back(type);
      ids.push_back(b.input("x" + std::to_string(ids.size()), type));
    }
    const ir::Node node = testing::make_node(decl, types.size(), c.attributes);
    const Result<std::vector<ir::ValueId>> results = decl.decompose(b, node, ids);
    ASSERT_TRUE(results.ok() && b.ok()) << c.op;
    const std::vector<ir::Type> declared = testing::infer_types(decl, types, c.attributes).value();
    ASSERT_EQ(results->size(), declared.size()) << c.op;
    for (std::size_t i = 0; i < declared.size(); ++i) EXPECT_EQ(b.type((*results)[i]), declared[i]) << c.op;
  }
}

TEST(NativeForm, EveryOneIsCompared) {
  std::set<std::string> compared;
  for (const Case& c : cases()) compared.insert(c.op);
  std::set<std::string> declared;
  for (const ir::OpDecl* decl : op_table().all())
    if (decl->decompose) declared.emplace(decl->name);
  EXPECT_EQ(compared, declared);
}

}  // namespace
}  // namespace tessera
