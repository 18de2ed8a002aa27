// Catches: native forms (an operator's computation by simpler operators) that compute something other than their
// operator, return results in the wrong order, or lose attributes; and native forms that no test compares with their
// operators.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>

#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/rows/row_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using testing::HostTensor;

constexpr std::int64_t kRows = 5;  // the first dimension: the number of tokens, T in a model

struct Operand {
  std::vector<std::int64_t> dims;
  std::optional<DType> dtype = std::nullopt;  // if absent, the operand has the case's dtype

  ir::Type type(DType of_case) const { return {dtype.value_or(of_case), ir::Shape(dims.begin(), dims.end())}; }
};

struct Case {
  std::string op;
  std::vector<Operand> operands;
  ir::Attributes attributes;
};

std::vector<Case> cases() {
  const std::int64_t cols = 96;
  const Operand x{{kRows, cols}};
  // Heads of 32 values: 4 of queries, 2 of keys and 2 of values. Rotary rotates all values of a head, or 20 of them.
  const Operand qkv{{kRows, 8 * 32}};
  const Operand slots{{kRows}, DType::kInt32};
  const Operand cache{{2, 8, 2, 32}};
  const Operand table{{kRows, 32}, DType::kFloat32};
  const Operand part_table{{kRows, 20}, DType::kFloat32};
  const Operand half_cache{{2, 8, 2, 32}, DType::kFloat16};
  const Operand head_weight{{32}};
  return {
      {"add_rms_norm", {x, x, {{cols}}}, {{"eps", 1e-5}}},
      {"gelu_mul", {x}, {}},
      {"gelu_mul", {x}, {{"tanh", false}}},
      {"add_rms_norm", {x, x, {{cols}}}, {{"eps", 1e-5}, {"unit_offset", true}}},
      {"head_norm", {x, {{24}}}, {{"eps", 1e-5}}},
      {"head_norm", {x, {{24}}}, {{"eps", 1e-5}, {"unit_offset", true}}},
      {"head_norm", {x, {{24}}}, {{"eps", 1e-5}, {"round_once", true}}},
      {"qkv_rope_store", {qkv, table, slots, cache, cache}, {{"heads", std::int64_t{4}}}},
      {"qkv_rope_store", {qkv, part_table, slots, half_cache, half_cache}, {{"heads", std::int64_t{4}}}},
      {"qkv_rope_store",
       {qkv, table, slots, cache, cache, head_weight, head_weight},
       {{"heads", std::int64_t{4}}, {"qk_norm", true}}},
      {"qkv_rope_store",
       {qkv, part_table, slots, half_cache, half_cache, head_weight, head_weight},
       {{"heads", std::int64_t{4}}, {"qk_norm", true}, {"eps", 1e-2}}},
      {"qkv_rope_store",
       {qkv, part_table, slots, half_cache, half_cache, head_weight, head_weight},
       {{"heads", std::int64_t{4}}, {"qk_norm", true}, {"unit_offset", true}}},
      {"qkv_rope_store",
       {qkv, table, slots, cache, cache, head_weight, head_weight},
       {{"heads", std::int64_t{4}}, {"qk_norm", true}, {"round_once", true}}},
      {"silu_mul", {x}, {}},
  };
}

// Makes random operands; integers are distinct slots of the cache.
std::vector<HostTensor> contents(const Case& c, DType dtype) {
  std::vector<HostTensor> tensors;
  for (const Operand& operand : c.operands) {
    const DType type = operand.dtype.value_or(dtype);
    tensors.push_back(testing::random_tensor(type, operand.dims, static_cast<std::uint32_t>(tensors.size()), -3, 3));
    if (type != DType::kInt32) continue;
    for (std::int64_t i = 0; i < tensors.back().size(); ++i) tensors.back().set(i, static_cast<double>(13 - 3 * i));
  }
  return tensors;
}

// Makes a graph that consists of the operator's native form alone. Appends the ids of the operands' values to `ids`.
// An operand that the operator writes becomes a state, which outlives a forward.
Result<ir::Graph> native_form(const ir::OpDecl& decl, const std::vector<ir::Type>& operands,
                              const ir::Attributes& attributes, std::vector<ir::ValueId>& ids) {
  ir::GraphBuilder b("native", built_in_ops());
  for (const ir::Type& type : operands) {
    const std::string name = "x" + std::to_string(ids.size());
    ids.push_back(decl.operands[ids.size()].mutated ? b.state(name, type) : b.input(name, type));
  }
  const ir::Node node = testing::make_node(decl, operands.size(), attributes);
  for (const ir::ValueId id : TRY(decl.decompose(b, node, ids))) b.output(id);
  return b.finish();
}

// Runs a graph's nodes one by one. `values` holds the operands on entry, and every value on return.
void run(const ir::Graph& graph, std::map<ir::ValueId, HostTensor>& values) {
  for (const ir::Node& node : graph.nodes) {
    std::vector<HostTensor> operands;
    for (const ir::ValueId id : node.operands) operands.push_back(values.at(id));
    const ir::OpDecl& decl = *built_in_ops().find(node.op);
    if (decl.execution == ir::Execution::kView) {
      HostTensor view = operands[0];
      view.dims = ir::evaluate(graph.value(node.results[0]).type.shape, {}).value();
      values[node.results[0]] = std::move(view);
      continue;
    }
    const auto outcome = testing::run_op(decl, *cpu_kernels().get(node.op).value(), operands, node.attributes);
    for (std::size_t i = 0; i < node.results.size(); ++i) values[node.results[i]] = outcome.results[i];
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (decl.operands[i].mutated) values[node.operands[i]] = outcome.operands[i];
  }
}

void compare(const Case& c, DType dtype) {
  const ir::OpDecl& decl = *built_in_ops().find(c.op);
  const std::vector<HostTensor> operands = contents(c, dtype);
  std::vector<ir::Type> types;
  for (const HostTensor& t : operands) types.push_back(t.type());
  std::vector<ir::ValueId> ids;
  const Result<ir::Graph> graph = native_form(decl, types, c.attributes, ids);
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  std::map<ir::ValueId, HostTensor> native;
  for (std::size_t i = 0; i < ids.size(); ++i) native[ids[i]] = operands[i];
  run(*graph, native);

  const auto fused = testing::run_op(decl, *cpu_kernels().get(c.op).value(), operands, c.attributes);
  ASSERT_EQ(graph->outputs.size(), fused.results.size()) << c.op;
  const auto expect_same = [&](const HostTensor& actual, ir::ValueId id) {
    ASSERT_EQ(native.at(id).type(), actual.type()) << c.op;
    testing::expect_close(actual, native.at(id).values(), testing::tolerance(actual.dtype, 2),
                          c.op + " against its native form");
  };
  for (std::size_t i = 0; i < fused.results.size(); ++i) expect_same(fused.results[i], graph->outputs[i]);
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (decl.operands[i].mutated) {
      EXPECT_NE(fused.operands[i].bytes, operands[i].bytes) << c.op << " wrote nothing to operand " << i;
      expect_same(fused.operands[i], ids[i]);
    }
}

TEST(NativeForm, ComputesTheSameAsTheKernel) {
  for (const Case& c : cases())
    for (const DType dtype : testing::kFloatingDTypes) compare(c, dtype);
}

// The native form also works with a symbol for the number of rows, as in a model.
TEST(NativeForm, AcceptsSymbolicRows) {
  for (const Case& c : cases()) {
    const ir::OpDecl& decl = *built_in_ops().find(c.op);
    std::vector<ir::Type> types;
    for (const Operand& operand : c.operands) {
      types.push_back(operand.type(DType::kBFloat16));
      if (operand.dims[0] == kRows) types.back().shape[0] = ir::Symbol::kTokens;
    }
    std::vector<ir::ValueId> ids;
    const Result<ir::Graph> graph = native_form(decl, types, c.attributes, ids);
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const std::vector<ir::Type> declared = testing::infer_types(decl, types, c.attributes).value();
    ASSERT_EQ(graph->outputs.size(), declared.size()) << c.op;
    for (std::size_t i = 0; i < declared.size(); ++i)
      EXPECT_EQ(graph->value(graph->outputs[i]).type, declared[i]) << c.op;
  }
}

TEST(NativeForm, EveryNativeFormIsCompared) {
  std::set<std::string> compared;
  for (const Case& c : cases()) compared.insert(c.op);
  std::set<std::string> declared;
  for (const ir::OpDecl* decl : built_in_ops().all())
    if (decl->decompose) declared.emplace(decl->name);
  EXPECT_EQ(compared, declared);
}

}  // namespace
}  // namespace tessera
