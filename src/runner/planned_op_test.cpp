// Tests planned operators (operators whose kernels need CPU code before each forward) other than attention, in the body
// and in the head. Catches: a plan that is not made, not called before a forward, not found by its kernel, or missing
// from the memory report; and a plan's error that is lost.
#include <gtest/gtest.h>

#include <array>

#include "tessera/base/testing/paths.h"
#include "tessera/device/alignment.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/runner/op_plans.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::ids;
using testing::make_bench;
using testing::RunnerBench;
using testing::small_options;

// A plan that passes the forward's number of tokens to its kernel. It returns an error if a forward has more than
// `kRefused` tokens.
constexpr std::int64_t kRefused = 44;
std::vector<float> factors_seen;  // the kernel appends one value at each launch

class TokenCountPlan final : public OpPlan {
 public:
  explicit TokenCountPlan(StepBuffer& step) : step_(step), offset_(step.reserve(sizeof(float))) {}
  Status plan(const ForwardBatch& batch, BatchKind /*kind*/, std::int64_t /*padded*/, Stream& /*stream*/) override {
    if (batch.num_tokens() > kRefused) return resource_exhausted("the token count plan refuses the batch");
    *reinterpret_cast<float*>(step_.host(offset_)) = static_cast<float>(batch.num_tokens());
    step_.written(offset_, sizeof(float));
    return ok_status();
  }
  std::int64_t bytes() const override { return static_cast<std::int64_t>(kDeviceAlignment); }
  std::vector<std::string_view> kernels(BatchKind /*kind*/) const override { return {"token count"}; }
  const float* count() const { return reinterpret_cast<const float*>(step_.device_address(offset_).raw()); }

 private:
  StepBuffer& step_;
  std::size_t offset_;
};

const OpPlanner kTokenCountPlanner{
    .make = [](Device&, const PlanArgs&, StepBuffer& step) -> Result<std::unique_ptr<OpPlan>> {
      return std::make_unique<TokenCountPlan>(step);
    },
    .bytes_needed = [](Device&, const PlanArgs&) -> Result<std::int64_t> {
      return static_cast<std::int64_t>(kDeviceAlignment);
    }};

// Returns the CPU's kernels, but with a test kernel for `op`. The test kernel fills its result with the number that its
// plan holds at run time. A test chooses silu_mul to replace an operator in the model's body, or gather_rows to replace
// one in the model's head.
KernelTable planned_kernels(std::string_view op = "silu_mul") {
  return cpu_kernels().with({.op = op,
                             .name = "planned",
                             .bind = [](const BindArgs& args) -> Result<std::unique_ptr<BoundOp>> {
                               const float* count = static_cast<const TokenCountPlan*>(TRY(find_plan(args)))->count();
                               return make_cpu_op("planned", [y = args.results[0], count] {
                                 factors_seen.push_back(*count);
                                 std::fill_n(y.as<float>(), y.elements(), *count);
                               });
                             },
                             .planner = &kTokenCountPlanner});
}

TEST(PlannedOp, GraphsReadThePlanOfTheirForward) {
  const KernelTable kernels = planned_kernels();
  RunnerOptions options = small_options();
  options.kernels = &kernels;
  RunnerBench bench = make_bench("llama", options);
  ASSERT_TRUE(bench.runner->capture().ok());
  EXPECT_THAT(bench.runner->planned_kernels(BatchKind::kExtend), "cpu, token count");

  for (const std::int64_t tokens : {11, 3, 14}) {
    factors_seen.clear();
    Decision decision;
    bench.logits({{ids(tokens)}}, testing::Rows::kLast, /*force_eager=*/false, &decision);
    EXPECT_EQ(decision.runner, RunnerKind::kPrefill);
    EXPECT_THAT(factors_seen, ::testing::Each(static_cast<float>(tokens)));
    EXPECT_FALSE(factors_seen.empty());
  }
}

// In a prefill the head runs after the body. In a decode it is part of the decode graph.
TEST(PlannedOp, AHeadOperatorReadsItsForwardsPlan) {
  const KernelTable kernels = planned_kernels("gather_rows");
  RunnerOptions options = small_options();
  options.kernels = &kernels;
  RunnerBench bench = make_bench("llama", options);
  ASSERT_TRUE(bench.runner->capture().ok());
  EXPECT_EQ(bench.runner->planned_kernels(BatchKind::kDecode), "cpu, token count");

  const auto seen = [&](const std::vector<testing::TestRequest>& requests, RunnerKind runner) {
    factors_seen.clear();
    Decision decision;
    bench.logits(requests, testing::Rows::kLast, /*force_eager=*/false, &decision);
    EXPECT_EQ(decision.runner, runner);
    return factors_seen;
  };
  EXPECT_THAT(seen({{ids(11)}}, RunnerKind::kPrefill), ::testing::ElementsAre(11));
  EXPECT_THAT(seen({{ids(12), 11}}, RunnerKind::kDecode), ::testing::ElementsAre(1));
  EXPECT_THAT(seen({{ids(7)}, {ids(9)}}, RunnerKind::kPrefill), ::testing::ElementsAre(16));
  EXPECT_THAT(seen({{ids(8), 7}, {ids(10), 9}}, RunnerKind::kDecode), ::testing::ElementsAre(2));
}

TEST(PlannedOp, ARefusedPlanFailsThatForwardOnly) {
  const KernelTable kernels = planned_kernels();
  RunnerOptions options = small_options();
  options.kernels = &kernels;
  RunnerBench bench = make_bench("llama", options);
  std::vector<float> logits;
  const auto refused = bench.forward(testing::make_batch({{ids(45)}}, testing::Rows::kLast), logits);
  EXPECT_THAT(refused.status().message(), HasSubstr("the token count plan refuses the batch"));
  bench.logits({{ids(5)}}, testing::Rows::kLast);
}

TEST(OpPlans, PlansTakeThePredictedBytes) {
  const KernelTable kernels = planned_kernels();
  RunnerBench bench = make_bench("llama", small_options());
  const ModelConfig config = *ModelConfig::read(testing::data_path("goldens/qwen2-swa"), built_in_families());
  const ModelGraphs graphs =
      *build_model(config, {.page_size = 8, .max_requests = 4}, built_in_ops(), built_in_families());
  const std::array<const ir::Graph*, 1> bodies{&graphs.body};
  const std::vector<std::int64_t> num_pages{33, 17};
  const OpPlans::Source source{
      .graphs = bodies,
      .kernels = kernels,
      .limits = {.max_requests = 4, .max_tokens = 48, .max_pages_per_request = 8, .page_size = 8},
      .num_pages = num_pages};
  StepBuffer step;
  const Result<OpPlans> plans = OpPlans::create(*bench.device, source, step);
  ASSERT_TRUE(plans.ok()) << plans.status().to_string();
  EXPECT_EQ(plans->bytes(), *OpPlans::bytes_needed(*bench.device, source));
  ForwardContext context;
  plans->add_to(context);
  std::vector<std::string> found;
  for (const PlanOfOp& plan : context.plans) found.push_back(plan.op + "/" + std::to_string(plan.group));
  EXPECT_THAT(found, ::testing::UnorderedElementsAre("attention/0", "attention/1", "silu_mul/0"));
}

TEST(FindPlan, TheErrorNamesOperatorAndGroup) {
  ir::Node node{.op = "attention"};
  node.attributes = {{"group", std::int64_t{3}}};
  const ForwardContext context;
  RunnerBench bench = make_bench("llama", small_options());
  const BindArgs args{.node = node, .operands = {}, .results = {}, .device = *bench.device, .context = context};
  EXPECT_THAT(find_plan(args).status().message(), HasSubstr("no plan of operator attention for cache group 3"));
}

TEST(PlannedOp, AStatesPlanOfRowsTakesNoCheckpoints) {
  RunnerOptions options = small_options();
  EXPECT_TRUE((*testing::try_make_bench("qwen3-next", options)).runner->takes_checkpoints());
  const KernelTable kernels = planned_kernels("causal_conv");
  options.kernels = &kernels;
  EXPECT_FALSE((*testing::try_make_bench("qwen3-next", options)).runner->takes_checkpoints());
}

// If requests have drafts, a plan that does not handle whole requests gets each row as a separate request. This is
// refused for an operator with a state, because its plan must know which rows belong to the same request. Plans of
// other operators need not know this.
TEST(PlannedOp, AStatesPlanThatTakesNoDraftsIsRefused) {
  RunnerOptions options = small_options();
  const auto status = [&](std::string_view op, std::int64_t drafts) {
    const KernelTable kernels = planned_kernels(op);
    options.kernels = &kernels;
    options.max_drafts = drafts;
    return testing::try_make_bench("qwen3-next", options).status();
  };
  EXPECT_THAT(status("causal_conv", 3).message(),
              HasSubstr("speculative_algorithm: causal_conv keeps a state for each request, and its planner takes no "
                        "drafts; NONE is accepted"));
  EXPECT_TRUE(status("causal_conv", 0).ok());
  EXPECT_TRUE(status("silu_mul", 3).ok()) << status("silu_mul", 3).message();
}

}  // namespace
}  // namespace tessera
