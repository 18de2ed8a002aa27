// Catches: a soak() that accepts wrong graphs, reports failures of correct ones, or is not reproducible.
#include "tessera/runner/verify/soak.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::make_captured;
using testing::RunnerBench;
using testing::small_options;

SoakReport soaked(const RunnerBench& bench, const SoakOptions& options) {
  Result<SoakReport> report = soak(*bench.runner, options);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return report.ok() ? *std::move(report) : SoakReport{};
}

class SoakOf : public ::testing::TestWithParam<const char*> {};

TEST_P(SoakOf, AcceptsCorrectGraphs) {
  const SoakReport report =
      soaked(make_captured(GetParam(), small_options(), ir::DType::kFloat32, testing::LastLayer::kOfWantedRows),
             {.batches = 150, .seed = 7});
  EXPECT_THAT(report.failures, IsEmpty());
  EXPECT_EQ(report.batches, 150);
  EXPECT_LE(report.greatest_difference, 1e-5);
  EXPECT_EQ(report.num_ties, 0);
  EXPECT_GT(report.cancelled, 0);
  EXPECT_GT(report.finished, 0);
  std::int64_t prefills = 0;
  std::int64_t decodes = 0;
  for (const auto& [key, count] : report.forwards.by_key) {
    if (key.runner == RunnerKind::kPrefill) prefills += count.forwards;
    if (key.runner == RunnerKind::kDecode) decodes += count.forwards;
    if (key.runner == RunnerKind::kEager) {
      EXPECT_EQ(key.reason, Reason::kAboveLargestSize);
    }
  }
  EXPECT_GT(prefills, 20);
  EXPECT_GT(decodes, 20);
}
INSTANTIATE_TEST_SUITE_P(Goldens, SoakOf, ::testing::Values("llama", "qwen3", "qwen2-swa", "qwen3-moe", "qwen3.5-text"),
                         [](const auto& p) {
                           std::string name = p.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

TEST(Soak, IsTheSameForTheSameSeed) {
  const RunnerBench bench = make_captured("llama", small_options());
  const SoakReport a = soaked(bench, {.batches = 40, .seed = 3});
  const SoakReport b = soaked(bench, {.batches = 40, .seed = 3});
  const SoakReport c = soaked(bench, {.batches = 40, .seed = 4});
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.greatest_difference, b.greatest_difference);
  EXPECT_NE(a.tokens, c.tokens);
}

TEST(Soak, HasSequencesForACacheOfOnePage) {
  RunnerOptions options = small_options();
  options.num_pages = {2};  // one page in addition to the reserved one
  const SoakReport report = soaked(make_captured("llama", options), {.batches = 20});
  EXPECT_THAT(report.failures, IsEmpty());
  EXPECT_GE(report.tokens, 20);
}

TEST(Soak, FindsValuesThatShareBytes) {
  RunnerOptions options = small_options();
  options.planner = [](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
    std::vector<LiveRange> changed(ranges.begin(), ranges.end());
    for (LiveRange& r : changed) r.last = r.first;
    return plan_memory(changed);
  };
  // The eager run and the graph run of the same size share the faulty plan, so only the run at another size shows the
  // fault.
  const SoakReport report = soaked(make_captured("llama", options), {.batches = 20});
  EXPECT_GT(report.num_failures, 0);
}

// Router ties are rare, so differences in many batches are failures even for a model with routers. With a negative
// tolerance, the difference of every batch is too large.
TEST(Soak, ManyRouterTiesAreFailures) {
  const RunnerBench routes = make_captured("qwen3-moe", small_options());
  const SoakReport one = soaked(routes, {.batches = 1, .tolerance = -1});
  EXPECT_THAT(one.failures, IsEmpty());
  EXPECT_EQ(one.num_ties, 1);
  ASSERT_EQ(one.ties.size(), 1U);
  EXPECT_THAT(one.ties.front(), HasSubstr("differs from the unpadded forward by"));
  const SoakReport many = soaked(routes, {.batches = 20, .tolerance = -1});
  EXPECT_EQ(many.num_failures, 20);
  EXPECT_EQ(many.num_ties, 0);
  EXPECT_GE(many.greatest_difference, one.greatest_tie);
  EXPECT_THAT(many.failures.front(), HasSubstr("differs from the unpadded forward by"));
  const SoakReport dense = soaked(make_captured("llama", small_options()), {.batches = 1, .tolerance = -1});
  EXPECT_EQ(dense.num_failures, 1);
  EXPECT_EQ(dense.num_ties, 0);
}

TEST(Soak, FindsGraphsThatAreNotTheirOperators) {
  const KernelTable kernels = testing::baking_kernels();
  RunnerOptions options = small_options();
  options.kernels = &kernels;
  testing::baked_number = 0.5F;
  const RunnerBench bench = make_captured("llama", options);
  EXPECT_THAT(soaked(bench, {.batches = 20}).failures, IsEmpty());
  testing::baked_number = 0.75F;
  const SoakReport report = soaked(bench, {.batches = 20});
  ASSERT_GT(report.num_failures, 0);
  EXPECT_THAT(report.failures.front(), HasSubstr("differ from those of the same operators without graph"));
}

TEST(Soak, FindsAnAttentionThatReadsAnotherGroupsPageTable) {
  const KernelTable kernels = testing::first_group_kernels();
  RunnerOptions options = small_options();
  options.kernels = &kernels;
  const SoakReport report = soaked(make_captured("qwen2-swa", options), {.batches = 40});
  EXPECT_GT(report.num_failures, 0);
}

TEST(Soak, AFailedForwardIsAnError) {
  const RunnerBench bench = make_captured("llama", small_options());
  bench.device->set_plan({.launch_fails_at = 500});
  const Result<SoakReport> report = soak(*bench.runner, {.batches = 60});
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.status().message(), HasSubstr("injected"));
}

}  // namespace
}  // namespace tessera
