// Catches: passes that change what a model means: its own graphs, which need none of them, or the same graphs spelled
// out, which must come back as they were; and native forms that compute something else in their model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "tessera/compile/eager.h"
#include "tessera/compile/passes/expand_native_forms.h"
#include "tessera/compile/passes/pass_test_util.h"
#include "tessera/compile/value_memory_test_util.h"
#include "tessera/device/testing/environment.h"
#include "tessera/device/testing/fake_device.h"
#include "tessera/model/config.h"
#include "tessera/model/family.h"
#include "tessera/model/model.h"
#include "tessera/ops/attention.h"

namespace tessera {
namespace {

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(testing::data_path("goldens")))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

ModelGraphs build(const std::string& name, const ModelOptions& options) {
  const Result<ModelConfig> config = ModelConfig::read(testing::data_path("goldens/" + name), built_in_families());
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  Result<ModelGraphs> graphs = build_model(*config, options, built_in_ops(), built_in_families());
  EXPECT_TRUE(graphs.ok()) << graphs.status().to_string();
  return *std::move(graphs);
}

class ModelPasses : public ::testing::TestWithParam<std::string> {};

TEST_P(ModelPasses, ExpandedGraphsComeBackAsTheyWere) {
  for (const ir::DType dtype : {ir::DType::kFloat32, ir::DType::kBFloat16})
    for (const int ranks : {1, 2}) {
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

// A forward of two requests of 3 and 4 tokens, one page each.
class BodyRun {
 public:
  static constexpr std::int64_t kPageSize = 16;
  static constexpr std::int64_t kTokens = 7;

  // "hidden" of `body`, whose inputs and weights have equal contents wherever their names are equal.
  std::vector<float> hidden(const ir::Graph& body) {
    plan(body.cache_groups.size());
    const Result<Program> program = eager_program(body, built_in_ops(), cpu_kernels());
    EXPECT_TRUE(program.ok()) << program.status().to_string();
    ir::Bucket bucket = testing::tokens(kTokens);
    for (std::size_t group = 0; group < ir::kMaxCacheGroups; ++group) bucket[ir::page_symbol(group)] = 3;
    testing::ValueMemory values(*device_, *stream_, *program, bucket);
    fill(body, values);
    const auto scratch = device_->allocate(*program->workspace_bytes(bucket, *device_, context_), "workspace");
    const Result<BoundProgram> bound = program->bind(values.target(bucket, context_, (*scratch)->data()));
    EXPECT_TRUE(bound.ok()) << bound.status().to_string();
    EXPECT_TRUE(bound->enqueue(*stream_).ok());
    return values.read("hidden");
  }

 private:
  void plan(std::size_t groups) {
    ForwardBatch batch;
    batch.query_lens = batch.kv_lens = {3, 4};
    CacheGroupBatch pages;
    pages.own({{PageId(1)}, {PageId(2)}});
    batch.groups.assign(groups, pages);
    plans_.clear();
    step_ = std::make_unique<StepBuffer>();
    context_.plans.clear();
    context_.limits = {.max_requests = 2, .max_tokens = kTokens, .max_pages_per_request = 1, .page_size = kPageSize};
    for (std::size_t g = 0; g < groups; ++g) {
      const auto group = static_cast<std::int64_t>(g);
      plans_.push_back(kAttentionCpu.planner
                           ->make(*device_,
                                  {.nodes = {},
                                   .kernel = kAttentionCpu.name,
                                   .group = group,
                                   .num_pages = 3,
                                   .limits = context_.limits},
                                  *step_)
                           .value());
      context_.plans.push_back({.op = "attention", .group = group, .plan = plans_.back().get()});
    }
    EXPECT_TRUE(step_->allocate(*device_, *stream_).ok());
    for (const std::unique_ptr<OpPlan>& plan : plans_)
      EXPECT_TRUE(plan->plan(batch, BatchKind::kExtend, 0, *stream_).ok());
    EXPECT_TRUE(step_->upload(*stream_).ok());
  }

  static void write_integers(testing::ValueMemory& values, const std::string& name,
                             const std::vector<std::int32_t>& integers) {
    testing::Bytes bytes(integers.size() * sizeof(std::int32_t));
    std::memcpy(bytes.data(), integers.data(), bytes.size());
    values.write_bytes(name, bytes);
  }

  static void fill(const ir::Graph& graph, testing::ValueMemory& values) {
    std::uint64_t seed = 1;
    for (const ir::ValueId id : graph.weights) {
      const std::vector<std::int64_t> dims = *ir::evaluate(graph.value(id).type.shape, {});
      std::size_t bytes = sizeof(float);
      for (const std::int64_t dim : dims) bytes *= static_cast<std::size_t>(dim);
      values.write_bytes(graph.value(id).name, testing::random_bytes(ir::DType::kFloat32, bytes, ++seed));
    }
    for (const ir::ValueId id : graph.inputs) {
      const std::string& name = graph.value(id).name;
      if (name == input_names::kInputIds) write_integers(values, name, {5, 9, 2, 7, 1, 3, 8});
      if (name == input_names::kInputRows || name == input_names::kEmbeddingRows)
        write_integers(values, name, std::vector<std::int32_t>(kTokens, -1));
      if (name == input_names::kPositions) write_integers(values, name, {0, 1, 2, 0, 1, 2, 3});
      if (name.starts_with(input_names::kSlots)) write_integers(values, name, {16, 17, 18, 32, 33, 34, 35});
    }
  }

  std::unique_ptr<FakeDevice> device_ = FakeDevice::create({}, {.threads = 1}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream("test").value();
  std::unique_ptr<StepBuffer> step_;
  std::vector<std::unique_ptr<OpPlan>> plans_;
  ForwardContext context_;
};

TEST_P(ModelPasses, ExpandedAndFusedAgree) {
  const ModelGraphs graphs = build(GetParam(), {.page_size = BodyRun::kPageSize, .max_requests = 2});
  const Result<ir::Graph> expanded = expand_native_forms(graphs.body, built_in_ops());
  ASSERT_TRUE(expanded.ok()) << expanded.status().to_string();
  ASSERT_GT(expanded->nodes.size(), graphs.body.nodes.size());
  BodyRun run;
  const std::vector<float> fused = run.hidden(graphs.body);
  const std::vector<float> native = run.hidden(*expanded);
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
  std::replace(name.begin(), name.end(), '-', '_');
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
