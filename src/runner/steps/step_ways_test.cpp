// A StepWay runs a step on one arrangement of ranks. Catches: a StepWay that is chosen although it does not fit the
// options; a new StepWay that cannot be written with the public classes alone; and results that depend on which StepWay
// runs the steps.
#include "tessera/runner/steps/step_ways.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using testing::ids;
using testing::make_batch;
using testing::make_bench;
using testing::Rows;
using testing::RunnerBench;
using testing::small_options;

// A StepWay whose submit() waits until the step is complete.
class AtOnce final : public StepWay {
 public:
  explicit AtOnce(const StepContext& context) : dispatcher_(context.dispatcher), forwards_(context.forwards) {}

  Result<Decision> submit(const ForwardInputs& inputs) override {
    const Decision decision = TRY(dispatcher_.decide(shape_of(inputs.batch, inputs.force_eager)));
    const ForwardEnd end = forwards_.submit(inputs, decision);
    TRY(dispatcher_.ended(decision, end));
    TRY(end.status);
    ran_.push_back(TRY(forwards_.collect()));
    return decision;
  }
  Result<StepOutputs> collect() override {
    const StepOutputs oldest = ran_.front();
    ran_.pop_front();
    return oldest;
  }
  int in_flight() const override { return static_cast<int>(ran_.size()); }

 private:
  Dispatcher& dispatcher_;
  LocalForwards& forwards_;
  std::deque<StepOutputs> ran_;
};

TEST(StepWays, OneRankRunsAlone) {
  const RunnerBench bench = make_bench("llama", small_options());
  RunnerParts& parts = bench.runner->parts();
  Dispatcher dispatcher(parts, bench.runner->captures());
  const StepContext context{parts, dispatcher, bench.runner->forwards()};
  for (MakeStepWay* const of_several : {make_data_parallel, make_host_pipeline, make_leader, make_peer})
    EXPECT_EQ(*of_several(context), nullptr);
  EXPECT_NE(*make_alone(context), nullptr);
  const std::unique_ptr<StepWay> way = make_step_way(context).value();
  EXPECT_THAT(way->run_idle_forward().message(), ::testing::HasSubstr("makes no idle forward"));
  EXPECT_EQ(way->fail(internal_error("injected")).message(), "injected");
}

TEST(StepWays, CanBeExtendedByOneClass) {
  const RunnerBench bench = make_bench("llama", small_options());
  RunnerParts& parts = bench.runner->parts();
  Dispatcher dispatcher(parts, bench.runner->captures());
  const std::unique_ptr<LocalForwards> forwards =
      LocalForwards::create(parts, dispatcher, bench.runner->step()).value();
  AtOnce way({parts, dispatcher, *forwards});
  const std::vector<SampleRow> greedy(1);
  std::vector<TokenId> wanted;
  std::vector<TokenId> got;
  for (const std::int32_t seed : {1, 2}) {
    const ForwardBatch batch = make_batch({{ids(9, seed)}}, Rows::kLast);
    wanted.push_back(bench.runner->forward({.batch = batch, .sampling = greedy}).value().step.sampled[0]);
    ASSERT_TRUE(way.submit({.batch = batch, .sampling = greedy}).ok());
  }
  EXPECT_EQ(way.in_flight(), 2);
  while (way.in_flight() > 0) got.push_back(way.collect().value().sampled[0]);
  EXPECT_EQ(got, wanted);
  EXPECT_EQ(forwards->counters().forwards(Reason::kGraphsDisabled), 2);
}

}  // namespace
}  // namespace tessera
