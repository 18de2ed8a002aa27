// Catches: a model whose fused programs compute something other than the model's operators, eagerly or as a graph; a
// model family in which the compiler no longer finds a group of operators to fuse; and generated CUDA code that does
// not compile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "tessera/compile/eager.h"
#include "tessera/compile/fused/fused.h"
#include "tessera/compile/fused/fusion_plan.h"
#include "tessera/compile/testing/model_body.h"
#include "tessera/device/cuda/nvrtc.h"
#include "tessera/ops/fused/cuda_source.h"
#include "tessera/ops/fused/row_cpu.h"

namespace tessera {
namespace {

using testing::BodyRun;
using testing::build;
using testing::model_names;

class FusedModels : public ::testing::TestWithParam<std::string> {};

TEST_P(FusedModels, ComputesTheSameAsItsOperators) {
  const ModelGraphs graphs = build(GetParam(), {.page_size = BodyRun::kPageSize, .max_requests = 2});
  BodyRun run;
  const Result<std::unique_ptr<Compiler>> compiler = make_fused_compiler(
      {.device = run.device(), .ops = built_in_ops(), .kernels = cpu_kernels(), .row_kernels = &cpu_row_kernels()});
  ASSERT_TRUE(compiler.ok()) << compiler.status().to_string();
  Result<CompiledPiece> piece = compile_piece(**compiler, graphs.body);
  ASSERT_TRUE(piece.ok()) << piece.status().to_string();
  Result<Program> own = eager_program(graphs.body, built_in_ops(), cpu_kernels());
  std::printf("%s: %zu kernels, %zu fused\n", GetParam().c_str(), own->instructions.size(),
              piece->program.instructions.size());
  EXPECT_LE(piece->program.instructions.size(), own->instructions.size());
  const std::vector<float> eager = run.hidden(graphs.body, std::move(own));
  const std::vector<float> fused = run.hidden(graphs.body, std::move(piece->program));
  ASSERT_EQ(fused.size(), eager.size());
  float greatest = 0;
  float difference = 0;
  for (std::size_t i = 0; i < fused.size(); ++i) {
    ASSERT_TRUE(std::isfinite(fused[i])) << i;
    greatest = std::max(greatest, std::abs(eager[i]));
    difference = std::max(difference, std::abs(fused[i] - eager[i]));
  }
  std::printf("%s: greatest difference %.2e of %.2e\n", GetParam().c_str(), static_cast<double>(difference),
              static_cast<double>(greatest));
  EXPECT_GT(greatest, 0.1F);
  EXPECT_LE(difference, 1e-5F * greatest);
}

INSTANTIATE_TEST_SUITE_P(Goldens, FusedModels, ::testing::ValuesIn(model_names()), [](const auto& model) {
  std::string name = model.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

// Returns the text of each row kernel in a model's graphs. The key is the name of the kernel's group.
std::map<std::string, std::set<std::string>> kernels_of(const std::string& model, ir::DType dtype,
                                                        std::vector<RowKernel>* kernels = nullptr) {
  std::map<std::string, std::set<std::string>> groups;
  const ModelGraphs graphs = build(model, {.dtype = dtype});
  for (const ir::Graph* graph : {&graphs.body, &graphs.head}) {
    const Result<FusionPlan> plan = plan_fusion(*graph, built_in_ops());
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    for (const FusionStep& step : plan->steps) {
      if (step.node != ir::kNoNode) continue;
      const bool is_new = groups[step.group.name].insert(to_text(step.group.kernel)).second;
      if (is_new && kernels != nullptr) kernels->push_back(step.group.kernel);
    }
  }
  return groups;
}

TEST(FusedGroups, AreAsExpectedInThreeFamilies) {
  const auto names = [](const std::string& model) {
    std::set<std::string> all;
    for (const auto& [name, kernels] : kernels_of(model, ir::DType::kBFloat16)) all.insert(name);
    return all;
  };
  EXPECT_THAT(names("qwen3"), ::testing::ElementsAre("fused.add.rms_norm", "fused.split.rms_norm.rotary.kv_store",
                                                     "fused.split.silu.mul"));
  EXPECT_THAT(names("olmo2"), ::testing::ElementsAre("fused.rms_norm.add", "fused.split.rms_norm.rotary.kv_store",
                                                     "fused.split.silu.mul"));
  EXPECT_THAT(names("llama"), ::testing::Contains("fused.split.rotary.kv_store"));
}

TEST(FusedGroups, EveryKernelCompilesForCuda) {
  const Result<const Nvrtc*> nvrtc = Nvrtc::load();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().message();
  std::set<std::string> compiled;
  for (const std::string& model : model_names())
    for (const ir::DType dtype : {ir::DType::kFloat32, ir::DType::kBFloat16, ir::DType::kFloat16}) {
      std::vector<RowKernel> kernels;
      static_cast<void>(kernels_of(model, dtype, &kernels));
      for (const RowKernel& kernel : kernels) {
        const Result<std::string> source = cuda_source(kernel);
        ASSERT_TRUE(source.ok()) << source.status().to_string();
        if (!compiled.insert(*source).second) continue;
        const Result<std::string> code = (*nvrtc)->compile(*source, kCudaEntry, 90);
        ASSERT_TRUE(code.ok()) << code.status().to_string() << "\n" << *source;
      }
    }
  std::printf("%zu kernels\n", compiled.size());
  EXPECT_GT(compiled.size(), 10U);
}

}  // namespace
}  // namespace tessera
