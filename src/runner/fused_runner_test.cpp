// Tests the fused compiler. Catches: graphs whose results differ from an eager run of the same program on isolated
// memory; results that differ from the eager compiler's results; and a size that was compiled by another compiler than
// the requested one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/runner/runner_test_util.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using testing::ids;
using testing::make_captured;
using testing::RunnerBench;
using testing::small_options;

RunnerOptions fused_options() {
  RunnerOptions options = small_options();
  options.compiler = "fused";
  return options;
}

std::int64_t fused_instructions(std::span<const CompiledPart> parts) {
  std::int64_t count = 0;
  for (const CompiledPart& part : parts)
    count += std::ranges::count_if(part.program->instructions,
                                   [](const Instruction& i) { return i.call.op.starts_with("fused."); });
  return count;
}

class FusedGoldens : public ::testing::TestWithParam<const char*> {};

TEST_P(FusedGoldens, GraphsAreTheirOwnEagerRunBitForBit) {
  RunnerOptions whole = fused_options();
  whole.split_ops.clear();
  whole.graphs.prefill_whole = true;
  RunnerOptions decodes = small_options();
  decodes.decode_compiler = "fused";
  decodes.decode_compiler_max = 2;
  for (const RunnerOptions& options : {fused_options(), whole, decodes})
    for (const ir::DType dtype : {ir::DType::kFloat32, ir::DType::kBFloat16, ir::DType::kFloat16}) {
      const RunnerBench bench = make_captured(GetParam(), options, dtype);
      const Result<VerifyReport> report = verify(*bench.runner, false);
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      EXPECT_TRUE(report->equal()) << ir::dtype_name(dtype);
    }
}

// On a CPU, both compilers' programs add in the same fixed order, and fused programs round every value where the
// operators round, so all bits are equal.
TEST_P(FusedGoldens, ComputesWhatTheEagerCompilerComputes) {
  for (const ir::DType dtype : {ir::DType::kFloat32, ir::DType::kBFloat16, ir::DType::kFloat16}) {
    RunnerBench eager = make_captured(GetParam(), small_options(), dtype);
    RunnerBench fused = make_captured(GetParam(), fused_options(), dtype);
    EXPECT_GT(fused_instructions(fused.runner->prefill().executable().parts()), 5);
    const std::vector<testing::TestRequest> prompts = {{.ids = ids(9)}, {.ids = ids(6, 2)}};
    EXPECT_EQ(fused.logits(prompts), eager.logits(prompts)) << ir::dtype_name(dtype);
    const std::vector<testing::TestRequest> next = {{.ids = ids(10), .computed = 9}, {.ids = ids(7, 2), .computed = 6}};
    EXPECT_EQ(fused.logits(next), eager.logits(next)) << ir::dtype_name(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Fused, FusedGoldens, ::testing::Values("llama", "qwen3", "olmo2", "phi3"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::ranges::replace(text, '-', '_');
                           return text;
                         });

TEST(FusedDecodes, UpToTheBatchThatWasAskedFor) {
  RunnerOptions options = small_options();
  options.decode_compiler = "fused";
  options.decode_compiler_max = 2;
  RunnerBench some = make_captured("qwen3", options);
  const GraphRunner& decode = some.runner->decode();
  const auto fused = [&](const GraphRunner& runner, std::int64_t size) {
    return fused_instructions(runner.executable().parts(runner.bucket(size)));
  };
  EXPECT_GT(fused(decode, 1), 5);
  EXPECT_GT(fused(decode, 2), 5);
  EXPECT_EQ(fused(decode, 4), 0);
  EXPECT_EQ(fused(some.runner->prefill(), 4), 0);
  RunnerBench eager = make_captured("qwen3", small_options());
  for (const std::int64_t requests : {1, 2, 3, 4}) {
    std::vector<testing::TestRequest> prompts;
    std::vector<testing::TestRequest> next;
    for (std::int64_t r = 0; r < requests; ++r) {
      prompts.push_back({.ids = ids(5 + r, static_cast<std::int32_t>(r))});
      next.push_back({.ids = ids(6 + r, static_cast<std::int32_t>(r)), .computed = 5 + r});
    }
    EXPECT_EQ(some.logits(prompts), eager.logits(prompts));
    Decision decision;
    EXPECT_EQ(some.logits(next, testing::Rows::kAll, false, &decision), eager.logits(next)) << requests;
    EXPECT_EQ(decision.size, requests == 3 ? 4 : requests);
  }
}

// The first start leaves its programs in the cache folder, and the second start loads them.
TEST(FusedStart, TheSecondLoadsWhatTheFirstCompiled) {
  const test::ScratchDir folder;
  RunnerOptions options = fused_options();
  options.cache_dir = folder.path();
  const auto counts = [&] {
    const RunnerBench bench = make_captured("llama", options);
    return bench.runner->prefill().executable().compile_counts();
  };
  const CompileCounts first = counts();
  const CompileCounts second = counts();
  EXPECT_EQ(first.loaded, 0);
  EXPECT_GT(first.compiled, 1);
  EXPECT_EQ(second.compiled, 0);
  EXPECT_EQ(second.loaded, first.compiled);
}

}  // namespace
}  // namespace tessera
