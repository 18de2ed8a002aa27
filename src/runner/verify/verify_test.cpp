// Catches: an oracle that accepts broken memory plans, rejects correct ones, or leaves the model changed.
#include "tessera/runner/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tessera/ops/device_registry.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::make_captured;
using ::testing::Not;
using testing::RunnerBench;
using testing::small_options;

VerifyReport verified(const RunnerBench& bench) {
  Result<VerifyReport> report = verify(*bench.runner, false);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return report.ok() ? *std::move(report) : VerifyReport{};
}

// Returns a text such as "prefill 16: %logits …" for every row that differs.
std::vector<std::string> differences(const VerifyReport& report) {
  std::vector<std::string> found;
  for (const VerifyRow& row : report.rows)
    if (!row.difference.empty()) found.push_back(row.runner + " " + std::to_string(row.size) + ": " + row.difference);
  return found;
}

class VerifyGoldens : public ::testing::TestWithParam<const char*> {};

TEST_P(VerifyGoldens, PassesInEveryMode) {
  using testing::LastLayer;
  const auto passes = [&](const RunnerOptions& options, ir::DType dtype, LastLayer last = LastLayer::kOfAllRows) {
    const VerifyReport report = verified(make_captured(GetParam(), options, dtype, last));
    EXPECT_THAT(differences(report), IsEmpty());
    return report.equal();
  };
  RunnerOptions whole = small_options();
  whole.split_ops.clear();
  whole.graphs.prefill_whole = true;
  RunnerOptions piecewise = small_options();
  piecewise.graphs.decode = false;
  EXPECT_TRUE(passes(small_options(), ir::DType::kFloat32));
  EXPECT_TRUE(passes(small_options(), ir::DType::kBFloat16));
  EXPECT_TRUE(passes(small_options(), ir::DType::kFloat16));
  EXPECT_TRUE(passes(small_options(), ir::DType::kFloat32, LastLayer::kOfWantedRows));
  EXPECT_TRUE(passes(whole, ir::DType::kFloat32));
  EXPECT_TRUE(passes(whole, ir::DType::kFloat32, LastLayer::kOfWantedRows));
  EXPECT_TRUE(passes(piecewise, ir::DType::kFloat32));
}
INSTANTIATE_TEST_SUITE_P(Verify, VerifyGoldens, ::testing::Values("llama", "qwen3", "mistral-swa", "qwen2-swa"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

TEST(Verify, ComparesEverySizeFullAndPadded) {
  const VerifyReport report = verified(make_captured("llama", small_options()));
  std::vector<std::string> rows;
  for (const VerifyRow& row : report.rows)
    rows.push_back(row.runner + " " + std::to_string(row.real) + "/" + std::to_string(row.size));
  EXPECT_THAT(rows,
              ::testing::IsSupersetOf({"prefill 4/4", "prefill 1/4", "prefill 16/16", "prefill 5/16", "prefill 40/40",
                                       "prefill 17/40", "decode 1/1", "decode 2/2", "decode 4/4", "decode 3/4"}));
}

// Returns a planner that gives the real planner wrong live ranges. `change` makes each of them wrong.
template <class Change>
Planner planner_of(const Change& change) {
  return [change](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
    std::vector<LiveRange> changed(ranges.begin(), ranges.end());
    for (LiveRange& r : changed) change(r);
    MemoryPlan plan = TRY(plan_memory(changed));
    for (std::size_t i = 0; i < ranges.size(); ++i)  // keeps enough memory for the ranges' true sizes
      plan.size_bytes = std::max(plan.size_bytes, plan.offsets[i] + ranges[i].bytes);
    return plan;
  };
}

TEST(Verify, ComparesLastRowsWhereWantedOnesAloneAreComputed) {
  const auto runners_of = [](const RunnerOptions& options, testing::LastLayer last) {
    std::vector<std::string> rows;
    for (const VerifyRow& row : verified(make_captured("llama", options, ir::DType::kFloat32, last)).rows)
      rows.push_back(row.runner + " " + std::to_string(row.real) + "/" + std::to_string(row.size));
    return rows;
  };
  EXPECT_THAT(runners_of(small_options(), testing::LastLayer::kOfWantedRows),
              ::testing::IsSupersetOf(
                  {"prefill, last rows 4/4", "prefill, last rows 16/16", "prefill, last rows 40/40", "prefill 40/40"}));
  EXPECT_THAT(runners_of(small_options(), testing::LastLayer::kOfAllRows), Not(Contains(HasSubstr("last rows"))));

  RunnerOptions broken = small_options();
  broken.planner = planner_of([](LiveRange& r) { r.last = r.first; });
  EXPECT_THAT(
      differences(verified(make_captured("llama", broken, ir::DType::kFloat32, testing::LastLayer::kOfWantedRows))),
      Contains(AllOf(HasSubstr("prefill, last rows 40: "), HasSubstr(" row 10 "))))
      << "of 40 rows 10, 24, 35 and 39 are compared";
}

TEST(Verify, WithoutRowsNothingIsProven) {
  EXPECT_FALSE(VerifyReport{}.equal());
  VerifyReport report;
  report.rows = {{.runner = "prefill", .size = 4, .real = 4, .difference = ""}};
  EXPECT_TRUE(report.equal());
  report.rows.push_back({.runner = "decode", .size = 4, .real = 4, .difference = "%logits"});
  EXPECT_FALSE(report.equal());
}

TEST(Verify, LeavesTheModelAsItWas) {
  RunnerBench bench = make_captured("qwen3", small_options());
  // The prompt contains 511, the last id of the vocabulary. Its embedding row is NaN during the comparison.
  const std::vector<testing::TestRequest> requests = {{.ids = {7, 511, 3, 511}, .computed = 0}};
  const std::vector<float> before = bench.logits(requests);
  EXPECT_TRUE(verified(bench).equal());
  EXPECT_EQ(bench.logits(requests), before);
}

// Makes the correct plan, and then moves the longest-lived range to the address of the first other range that is alive
// at the same time.
Result<MemoryPlan> move_the_longest_lived(std::span<const LiveRange> ranges) {
  MemoryPlan plan = TRY(plan_memory(ranges));
  const auto lives = [&](std::size_t i) { return ranges[i].fixed_offset >= 0 ? -1 : ranges[i].last - ranges[i].first; };
  std::size_t moved = 0;
  for (std::size_t i = 1; i < ranges.size(); ++i)
    if (lives(i) > lives(moved)) moved = i;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const bool together = ranges[i].first <= ranges[moved].last && ranges[moved].first <= ranges[i].last;
    if (i == moved || !together || ranges[i].fixed_offset >= 0) continue;
    plan.offsets[moved] = plan.offsets[i];
    break;
  }
  plan.size_bytes *= 2;
  return plan;
}

struct BrokenPlanner {
  const char* what;
  Planner planner;
  bool shows_in_decode = true;
};
std::vector<BrokenPlanner> broken_planners() {
  return {
      {"a residual under another value", move_the_longest_lived},
      // This fault does not show in a decode, because a decode has few rows and its kernels read all operands before
      // they write results over them.
      {"operands freed in the step that reads them",
       planner_of([](LiveRange& r) { r.last = std::max(r.first, r.last - 1); }), /*shows_in_decode=*/false},
      {"every value for one step only", planner_of([](LiveRange& r) { r.last = r.first; })},
      {"half of the bytes", planner_of([](LiveRange& r) { r.bytes /= 2; })},
      {"values freed at the next cut", planner_of([](LiveRange& r) { r.last = std::min(r.last, r.first + 4); })},
  };
}

TEST(Verify, CatchesBrokenPlansOfBothRunners) {
  for (const BrokenPlanner& broken : broken_planners()) {
    RunnerOptions options = small_options();
    options.planner = broken.planner;
    const VerifyReport report = verified(make_captured("llama", options));
    EXPECT_FALSE(report.equal()) << broken.what;
    EXPECT_THAT(differences(report), Contains(HasSubstr("prefill 40"))) << broken.what;
    if (broken.shows_in_decode) {
      EXPECT_THAT(differences(report), Contains(HasSubstr("decode 4"))) << broken.what;
    }
  }
}

TEST(Verify, CatchesBrokenPlansOfAWholePrefill) {
  for (const BrokenPlanner& broken : broken_planners()) {
    RunnerOptions options = small_options();
    options.split_ops.clear();
    options.graphs.prefill_whole = true;
    options.graphs.decode = false;
    options.planner = broken.planner;
    EXPECT_FALSE(verified(make_captured("qwen2", options)).equal()) << broken.what;
  }
}

// If the plan is broken for one size only, the report must show a difference at this size.
TEST(Verify, FindsABrokenPlanAtItsSize) {
  RunnerOptions options = small_options();
  options.graphs.decode = false;
  // A value of 16 tokens with a hidden size of 64 has 4096 bytes in float32.
  options.planner = [](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
    const bool this_size =
        std::any_of(ranges.begin(), ranges.end(), [](const LiveRange& r) { return r.bytes == 4096; });
    std::vector<LiveRange> changed(ranges.begin(), ranges.end());
    for (LiveRange& r : changed)
      if (this_size) r.last = r.first;
    return plan_memory(changed);
  };
  const std::vector<std::string> found = differences(verified(make_captured("llama", options)));
  EXPECT_THAT(found, ::testing::SizeIs(2)) << "full and padded";
  EXPECT_THAT(found, Each(HasSubstr("prefill 16")));
}

TEST(Verify, CatchesAnOperatorThatBakesInHostData) {
  const KernelTable kernels = testing::baking_kernels();
  RunnerOptions options = small_options();
  options.kernels = &kernels;
  testing::baked_number = 0.5F;
  RunnerBench bench = make_captured("llama", options);
  EXPECT_TRUE(verified(bench).equal()) << "with the number it was captured with";
  testing::baked_number = 0.75F;  // differs from the captured value, like the lengths of another batch
  const std::vector<std::string> found = differences(verified(bench));
  EXPECT_THAT(found, Contains(HasSubstr("prefill 16")));
  EXPECT_THAT(found, Contains(HasSubstr("decode 4")));
}

// The model has layers of two cache groups, and at every size of both runners the batch has different pages in each
// group.
TEST(Verify, CatchesAnAttentionThatReadsAnotherGroupsPageTable) {
  RunnerOptions options = small_options();
  options.num_pages = {65};
  EXPECT_THAT(differences(verified(make_captured("qwen2-swa", options))), IsEmpty());
  const KernelTable kernels = testing::first_group_kernels();
  options.kernels = &kernels;
  const std::vector<std::string> found = differences(verified(make_captured("qwen2-swa", options)));
  for (const char* size : {"prefill 4:", "prefill 16:", "prefill 40:", "decode 1:", "decode 2:", "decode 4:"})
    EXPECT_THAT(found, Contains(AllOf(HasSubstr(size), HasSubstr("is NaN")))) << size;
}

// The head runs after the body in the same arena and must not overwrite the body's output, which it reads.
TEST(Verify, CatchesAHeadThatOverwritesItsInput) {
  RunnerOptions options = small_options();
  // In the head's plan, a range that is alive in all steps reserves the memory of the body's output. This planner lets
  // other values use the reserved memory.
  options.planner = [](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
    const bool head = !ranges.empty() && ranges.back().last == std::numeric_limits<std::int32_t>::max() - 1;
    if (!head) return plan_memory(ranges);
    MemoryPlan plan = TRY(plan_memory(ranges));
    for (std::int64_t& offset : plan.offsets) offset = 0;
    return plan;
  };
  const std::vector<testing::TestRequest> requests = {{testing::ids(9)}, {testing::ids(7, 2)}};
  for (const auto last : {testing::LastLayer::kOfAllRows, testing::LastLayer::kOfWantedRows}) {
    RunnerBench broken = make_captured("llama", options, ir::DType::kFloat32, last);
    ASSERT_NE(broken.logits(requests), make_captured("llama", small_options()).logits(requests))
        << "forwards are wrong";
    EXPECT_FALSE(verified(broken).equal());
  }
}

TEST(Verify, AFailedComparisonRestoresTheModel) {
  RunnerBench bench = make_captured("llama", small_options());
  const std::vector<testing::TestRequest> requests = {{.ids = {7, 511, 3, 511}, .computed = 0}};
  const std::vector<float> before = bench.logits(requests);
  for (const FaultPlan faults :
       {FaultPlan{.out_of_memory_at = 3}, FaultPlan{.replay_fails_at = 2}, FaultPlan{.launch_fails_at = 40}}) {
    bench.device->set_plan(faults);
    EXPECT_FALSE(verify(*bench.runner, false).ok());
    bench.device->set_plan({});
    EXPECT_EQ(bench.logits(requests), before);
    EXPECT_TRUE(verified(bench).equal());
  }
}

}  // namespace
}  // namespace tessera
