// Tests the sums of the squared inputs of linears and experts, which quantisation uses as an importance matrix.
// Catches: sums that include padding rows or rows of another request; a linear or expert that is not observed; observed
// inputs of the experts' down matrices that differ from those that moe_experts computes; an observer that changes a
// forward; and observed forwards that replay graphs.
#include "tessera/runner/observe/linear_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::ids;
using testing::LastLayer;
using testing::make_batch;
using testing::make_captured;
using testing::Rows;
using testing::RunnerBench;
using testing::small_options;
using testing::TestRequest;

const std::vector<TestRequest> kTwo = {{ids(13, 5)}, {ids(10, 2)}};  // 13 + 10 = 23 tokens

RunnerBench make_uncaptured(const std::string& golden, LastLayer last = LastLayer::kOfAllRows) {
  return testing::make_bench(golden, small_options(), ir::DType::kFloat32, last);
}

double sum_of(const std::vector<double>& numbers) {
  double sum = 0;
  for (const double number : numbers) sum += number;
  return sum;
}

TEST(LinearInputs, EveryRowOfARequestCountsOnce) {
  RunnerBench bench = make_uncaptured("llama");
  LinearInputs observed(*bench.runner);
  bench.runner->set_observer(&observed);
  const std::vector<float> seen = bench.logits(kTwo, Rows::kAll, true);
  bench.runner->set_observer(nullptr);
  EXPECT_EQ(seen, bench.logits(kTwo, Rows::kAll, true)) << "the observer changed the forward";
  std::size_t weights = 0;
  for (const ir::Node& node : bench.runner->model().graphs.body.nodes)
    if (node.op == "linear") ++weights;
  EXPECT_EQ(observed.inputs().size(), weights + 1) << "one of the weights is the head";
  for (const ObservedInput& input : observed.inputs()) {
    EXPECT_EQ(input.counts, std::vector<double>{23}) << input.weight;
    EXPECT_GT(sum_of(input.sums), 0) << input.weight;
  }
}

// The inputs of the head are the hidden states that a forward returns, so the test can compute the head's sums from
// them.
TEST(LinearInputs, SumsAreThoseOfTheSquares) {
  RunnerBench bench = make_uncaptured("llama");
  const ForwardBatch batch = make_batch(kTwo, Rows::kAll);
  const auto width = static_cast<std::size_t>(bench.runner->hidden_size());
  std::vector<float> hidden(static_cast<std::size_t>(batch.num_tokens()) * width);
  std::vector<float> logits(batch.wanted_rows.size() * static_cast<std::size_t>(bench.runner->vocab_size()));
  LinearInputs observed(*bench.runner);
  bench.runner->set_observer(&observed);
  ASSERT_TRUE(
      bench.runner->forward({.batch = batch, .logits = logits, .hidden_states = hidden, .force_eager = true}).ok());
  std::vector<double> want(width);
  for (std::size_t i = 0; i < hidden.size(); ++i) want[i % width] += std::pow(static_cast<double>(hidden[i]), 2);
  bool found = false;
  for (const ObservedInput& input : observed.inputs()) {
    if (!input.weight.starts_with("lm_head")) continue;
    found = true;
    for (std::size_t i = 0; i < width; ++i) EXPECT_NEAR(input.sums[i], want[i], 1e-9 * want[i]);
  }
  EXPECT_TRUE(found);
}

TEST(LinearInputs, LastLayerSeesWantedRowsAlone) {
  RunnerBench bench = make_uncaptured("llama", LastLayer::kOfWantedRows);
  LinearInputs observed(*bench.runner);
  bench.runner->set_observer(&observed);
  bench.logits(kTwo, Rows::kLast, true);
  std::vector<double> counts;
  for (const ObservedInput& input : observed.inputs()) counts.push_back(input.counts[0]);
  EXPECT_THAT(counts, ::testing::Contains(2)) << "the last layer has the last row of each request";
  EXPECT_THAT(counts, ::testing::Contains(23));
}

// The 23 tokens are padded to the captured size 40.
TEST(LinearInputs, CapturedSizesRunWithoutTheirGraphs) {
  RunnerBench bench = make_captured("llama", small_options());
  const std::vector<float> replayed = bench.logits(kTwo);
  LinearInputs observed(*bench.runner);
  bench.runner->set_observer(&observed);
  Decision decision;
  EXPECT_EQ(bench.logits(kTwo, Rows::kAll, false, &decision), replayed);
  EXPECT_EQ(decision.size, 40);
  for (const ObservedInput& input : observed.inputs()) EXPECT_EQ(input.counts, std::vector<double>{23}) << input.weight;
}

// Returns the CPU's kernels, with a joined kernel (one for several operators) that fails when it runs.
KernelTable failing_joins() {
  class Fails final : public BoundOp {
    Status enqueue(Stream& /*stream*/) const override { return internal_error("the joined kernel ran"); }
  };
  std::vector<KernelDef> kernels;
  for (const ir::OpDecl* op : built_in_ops().all())
    if (const KernelDef* kernel = cpu_kernels().find(op->name)) kernels.push_back(*kernel);
  return KernelTable(std::move(kernels),
                     {{.ops = {"silu_mul", "linear"},
                       .name = "test",
                       .most_rows = 1000,
                       .bind = [](std::span<const BindArgs> /*calls*/) -> Result<std::unique_ptr<BoundOp>> {
                         return std::make_unique<Fails>();
                       }}});
}

TEST(LinearInputs, JoinedKernelsRunAsSingleOperators) {
  RunnerBench plain = make_uncaptured("llama");
  const KernelTable kernels = failing_joins();
  RunnerOptions options = small_options();
  options.kernels = &kernels;
  RunnerBench joined = testing::make_bench("llama", options);
  std::vector<float> logits;
  EXPECT_THAT(joined.forward(make_batch(kTwo, Rows::kAll), logits, true).status().message(),
              HasSubstr("the joined kernel ran"));
  LinearInputs observed(*joined.runner);
  joined.runner->set_observer(&observed);
  EXPECT_EQ(joined.logits(kTwo, Rows::kAll, true), plain.logits(kTwo, Rows::kAll, true));
}

// Compares the inputs of the down matrices with a plain computation from the float32 operands of moe_experts.
class DownInputs final : public OperatorObserver {
 public:
  explicit DownInputs(RunnerParts& parts) : experts_(parts) {}

  Status before(const ObservedCall& call) override {
    if (call.node().op != "moe_experts") return ok_status();
    const ExpertSizes sizes = TRY(ExpertInputs::sizes(call));
    const TensorView x = TRY(call.operand(0));
    const auto* const gate_up = TRY(call.operand(3)).as<float>();
    const bool bias = call.node().attribute_or("gate_up_bias", false);
    const float* const biases = bias ? TRY(call.operand(5)).as<float>() : nullptr;
    for (std::int64_t expert = 0; expert < sizes.experts; ++expert) {
      const ObservedRows rows{.bytes = {x.data.raw(), static_cast<std::size_t>(x.bytes())},
                              .dtype = x.dtype,
                              .rows = x.rows(),
                              .cols = x.cols()};
      const std::span<const float> got = TRY(experts_.down_inputs(call, expert, rows));
      for (std::int64_t i = 0; i < std::ssize(got); ++i) {
        const std::int64_t row = i / sizes.intermediate;
        const std::int64_t column = i % sizes.intermediate;
        const auto product = [&](std::int64_t of) {
          const std::int64_t at = expert * 2 * sizes.intermediate + of;
          double sum = biases != nullptr ? static_cast<double>(biases[at]) : 0;
          for (std::int64_t c = 0; c < x.cols(); ++c)
            sum += static_cast<double>(x.as<float>()[row * x.cols() + c]) *
                   static_cast<double>(gate_up[at * x.cols() + c]);
          return sum;
        };
        const double want = activated(call.node(), product(column), product(sizes.intermediate + column));
        worst = std::max(worst, std::abs(want - static_cast<double>(got[static_cast<std::size_t>(i)])));
        ++compared;
      }
    }
    return ok_status();
  }

  double worst = 0;
  std::int64_t compared = 0;

 private:
  static double activated(const ir::Node& node, double gate, double up) {
    const double limit = node.attribute_or("limit", 0.0);
    const std::string name = string_attribute(node, "activation", "silu");
    if (name == "clamped_swiglu") {
      gate = std::min(gate, limit);
      return gate / (1 + std::exp(-1.702 * gate)) * (std::clamp(up, -limit, limit) + 1);
    }
    if (name == "gelu_tanh")
      return 0.5 * gate * (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up;
    return gate / (1 + std::exp(-gate)) * up;
  }

  ExpertInputs experts_;
};

TEST(LinearInputs, ExpertsDownSeesTheActivatedProduct) {
  for (const char* golden : {"mixtral", "qwen3-moe", "gpt-oss", "gemma4-moe"}) {
    RunnerBench bench = make_uncaptured(golden);
    DownInputs compare(bench.runner->parts());
    bench.runner->set_observer(&compare);
    const std::size_t groups = bench.runner->model().num_cache_groups();
    std::vector<float> logits;
    const Status status = bench.forward(make_batch({{ids(9, 5)}}, Rows::kAll, groups), logits, true).status();
    ASSERT_TRUE(status.ok()) << golden << ": " << status.message();
    EXPECT_GT(compare.compared, 0) << golden;
    EXPECT_LT(compare.worst, 1e-4) << golden;
  }
}

TEST(LinearInputs, ExpertsCountTheRowsThatChoseThem) {
  RunnerBench bench = make_uncaptured("mixtral");
  LinearInputs observed(*bench.runner);
  bench.runner->set_observer(&observed);
  bench.logits(kTwo, Rows::kAll, true);
  std::size_t stacks = 0;
  for (const ObservedInput& input : observed.inputs()) {
    if (input.kind == ObservedWeight::kLinear) continue;
    ++stacks;
    EXPECT_EQ(sum_of(input.counts), 2 * 23) << input.weight << ": two experts of each token";
    EXPECT_EQ(input.sums.size() % input.counts.size(), 0u);
    const std::size_t cols = input.sums.size() / input.counts.size();
    for (std::size_t expert = 0; expert < input.counts.size(); ++expert)
      EXPECT_EQ(input.counts[expert] == 0, input.sums[expert * cols] == 0) << input.weight << ", expert " << expert;
  }
  EXPECT_EQ(stacks, 2 * bench.runner->model().graphs.layers.size());
  EXPECT_TRUE(observed.left_out().empty());
}

TEST(LinearInputs, ExpertsInMxfp4AreNamed) {
  RunnerBench bench = make_uncaptured("gpt-oss-mxfp4");
  LinearInputs observed(*bench.runner);
  bench.runner->set_observer(&observed);
  std::vector<float> logits;
  const std::size_t groups = bench.runner->model().num_cache_groups();
  ASSERT_TRUE(bench.forward(make_batch({{ids(9, 5)}}, Rows::kAll, groups), logits, true).ok());
  EXPECT_EQ(observed.left_out().size(), 2 * bench.runner->model().graphs.layers.size());
}

}  // namespace
}  // namespace tessera
