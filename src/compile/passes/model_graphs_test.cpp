// Catches: passes that change what a model computes; native forms that do not compute what their operators compute. An
// operator's native form is its decomposition into simpler operators. A model builds its graphs with fused operators,
// and the passes must leave these graphs unchanged. If a test replaces every operator of such a graph by its native
// form, the passes must produce the model's graph again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

#include "tessera/compile/eager.h"
#include "tessera/compile/passes/expand_native_forms.h"
#include "tessera/compile/passes/pass_test_util.h"
#include "tessera/compile/testing/model_body.h"

namespace tessera {
namespace {

using testing::BodyRun;
using testing::build;
using testing::model_names;

// Returns the world sizes to test. The 4-bit model runs on one rank only, because each expert has three blocks of
// weights, which cannot be divided evenly between two ranks.
std::vector<int> ranks_of(std::string_view model) {
  return model.ends_with("-mxfp4") ? std::vector{1} : std::vector{1, 2};
}

class ModelPasses : public ::testing::TestWithParam<std::string> {};

TEST_P(ModelPasses, ExpandedGraphsComeBackAsTheyWere) {
  for (const ir::DType dtype : {ir::DType::kFloat32, ir::DType::kBFloat16})
    for (const int ranks : ranks_of(GetParam())) {
      const ModelGraphs graphs = build(GetParam(), {.dtype = dtype, .tp_size = ranks});
      for (const ir::Graph* own : {&graphs.body, &graphs.head, &graphs.sampler, &graphs.choose, &graphs.logprobs}) {
        const Result<ir::Graph> expanded = expand_native_forms(*own, built_in_ops());
        ASSERT_TRUE(expanded.ok()) << expanded.status().to_string();
        ASSERT_TRUE(ir::verify(*expanded, built_in_ops()).ok()) << ir::verify(*expanded, built_in_ops()).to_string();
        for (const ir::Node& node : expanded->nodes)
          EXPECT_EQ(built_in_ops().find(node.op)->decompose, nullptr) << node.op << " is left";
        const Result<PassRun> run = run_passes(*expanded, built_in_ops());
        ASSERT_TRUE(run.ok()) << run.status().to_string();
        EXPECT_EQ(ir::to_text(run->graph), ir::to_text(*own));
        EXPECT_TRUE(ir::structurally_equal(run->graph, *own));
      }
    }
}

TEST_P(ModelPasses, TheModelsOwnGraphsNeedNone) {
  const ModelGraphs graphs = build(GetParam(), {});
  for (const ir::Graph* own : {&graphs.body, &graphs.head, &graphs.sampler, &graphs.choose, &graphs.logprobs}) {
    const Result<PassRun> run = run_passes(*own, built_in_ops());
    ASSERT_TRUE(run.ok()) << run.status().to_string();
    for (const PassReport& report : run->reports) EXPECT_FALSE(report.changed) << report.pass << " on " << report.graph;
  }
}

TEST_P(ModelPasses, ExpandedAndFusedAgree) {
  const ModelGraphs graphs = build(GetParam(), {.page_size = BodyRun::kPageSize, .max_requests = 2});
  const Result<ir::Graph> expanded = expand_native_forms(graphs.body, built_in_ops());
  ASSERT_TRUE(expanded.ok()) << expanded.status().to_string();
  ASSERT_GT(expanded->nodes.size(), graphs.body.nodes.size());
  BodyRun run;
  const auto hidden = [&](const ir::Graph& body) {
    return run.hidden(body, eager_program(body, built_in_ops(), cpu_kernels()));
  };
  const std::vector<float> fused = hidden(graphs.body);
  const std::vector<float> native = hidden(*expanded);
  ASSERT_EQ(fused.size(), native.size());
  float greatest = 0;
  float difference = 0;
  for (std::size_t i = 0; i < fused.size(); ++i) {
    ASSERT_TRUE(std::isfinite(fused[i])) << i;
    greatest = std::max(greatest, std::abs(fused[i]));
    difference = std::max(difference, std::abs(fused[i] - native[i]));
  }
  std::printf("%s: greatest difference %.2e of %.2e\n", GetParam().c_str(), static_cast<double>(difference),
              static_cast<double>(greatest));
  EXPECT_GT(greatest, 0.1F);
  EXPECT_LE(difference, 1e-5F * greatest);
}

INSTANTIATE_TEST_SUITE_P(Goldens, ModelPasses, ::testing::ValuesIn(model_names()), [](const auto& model) {
  std::string name = model.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

TEST(ExpandNativeForms, ValuesKeepTheirNamesAndNewOnesAvoidThem) {
  const ir::Graph graph = testing::parse_statements(R"(
      %n.add = silu(%x)
      %n, %sum = add_rms_norm(%n.add, %r, %w) {eps = 1e-05}
      %y = silu_mul(%n)
      return %y, %sum)");
  const Result<ir::Graph> expanded = expand_native_forms(graph, built_in_ops());
  ASSERT_TRUE(expanded.ok()) << expanded.status().to_string();
  EXPECT_EQ(ir::to_text(*expanded), testing::graph(R"(
      %n.add = silu(%x)
      %sum = add(%n.add, %r)
      %n = rms_norm(%sum, %w) {eps = 1e-05}
      %y.split, %y.split.1 = split(%n) {sizes = [4, 4]}
      %y.silu = silu(%y.split)
      %y = mul(%y.silu, %y.split.1)
      return %y, %sum)"));
}

}  // namespace
}  // namespace tessera
