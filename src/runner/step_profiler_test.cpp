// Catches: host time that is counted twice or for the wrong forward; device times that are counted for another forward;
// parts of a forward that are lost; and measurements that change the results of a forward.
#include "tessera/runner/step_profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using testing::ids;
using testing::make_captured;
using testing::Rows;
using testing::RunnerBench;
using testing::small_options;
using testing::TestRequest;

constexpr std::chrono::milliseconds kNap{5};

std::unique_ptr<StepProfiler> start(RunnerBench& bench) {
  Result<std::unique_ptr<StepProfiler>> profiler = StepProfiler::start(*bench.device, bench.runner->stream());
  EXPECT_TRUE(profiler.ok()) << profiler.status().to_string();
  return *std::move(profiler);
}

TEST(StepProfiler, TimeCountsForTheInnermostWork) {
  RunnerBench bench = make_captured("llama", small_options());
  const std::unique_ptr<StepProfiler> profiler = start(bench);
  {
    const StepProfiler::Scope collecting(profiler.get(), HostWork::kCollect);
    for (int i = 0; i < 3; ++i) {
      const StepProfiler::Scope text(profiler.get(), HostWork::kText);
      std::this_thread::sleep_for(kNap);
    }
  }
  { const StepProfiler::Scope text(profiler.get(), HostWork::kText); }
  { const StepProfiler::Scope none(nullptr, HostWork::kIdle); }
  const std::vector<HostSpan>& host = profiler->host();
  ASSERT_THAT(host, ElementsAre(Field(&HostSpan::work, HostWork::kText), Field(&HostSpan::work, HostWork::kCollect),
                                Field(&HostSpan::work, HostWork::kText)));
  EXPECT_GE(host[0].own_ms, 15) << "texts without other work between them are one span";
  EXPECT_NEAR(host[1].own_ms + host[0].own_ms, host[1].end_ms - host[1].begin_ms, 0.5);
  EXPECT_LE(host[1].begin_ms, host[0].begin_ms);
  EXPECT_GE(host[1].end_ms, host[0].end_ms);
}

TEST(StepProfiler, ForwardsAreTheSameAndTheirPartsAddUp) {
  RunnerBench bench = make_captured("llama", small_options());
  const std::vector<TestRequest> prompts = {{ids(16, 2)}};
  const std::vector<TestRequest> next = {{ids(17, 2), 16}};
  const std::vector<float> want = bench.logits(prompts);
  const std::vector<float> want_next = bench.logits(next);
  const std::unique_ptr<StepProfiler> profiler = start(bench);
  bench.runner->set_profiler(profiler.get());
  EXPECT_EQ(bench.logits(prompts), want);
  EXPECT_EQ(bench.logits(next), want_next);
  bench.logits(prompts, Rows::kLast, true);
  bench.runner->set_profiler(nullptr);
  bench.logits(prompts);

  const std::vector<ProfiledForward>& forwards = profiler->forwards();
  ASSERT_EQ(forwards.size(), 3u);
  const auto parts = [](const ProfiledForward& forward) {
    std::vector<std::string> names;
    for (const DevicePart& part : forward.parts) names.push_back(part.name);
    return names;
  };
  EXPECT_THAT(parts(forwards[0]), ElementsAre("prefill pieces", "attention", "head", "results"));
  EXPECT_THAT(parts(forwards[1]), ElementsAre("decode", "results"));
  EXPECT_THAT(parts(forwards[2]), ElementsAre("prefill pieces", "attention", "head", "results"));
  EXPECT_EQ(forwards[0].decision.runner, RunnerKind::kPrefill);
  EXPECT_EQ(forwards[1].decision.runner, RunnerKind::kDecode);
  EXPECT_EQ(forwards[2].decision.reason, Reason::kEagerRequested);
  double before = 0;
  for (const ProfiledForward& forward : forwards) {
    double sum = 0;
    for (const DevicePart& part : forward.parts) {
      EXPECT_GE(part.ms, 0);
      sum += part.ms;
    }
    EXPECT_NEAR(sum, forward.end_ms - forward.begin_ms, 1e-3);
    EXPECT_GE(forward.begin_ms, before);
    before = forward.end_ms;
  }
  EXPECT_LE(before, profiler->now_ms() + 1);
  for (const HostSpan& span : profiler->host()) EXPECT_LT(span.forward, 3);
}

TEST(StepProfiler, AForwardThatFailedIsForgotten) {
  RunnerBench bench = make_captured("llama", small_options());
  const std::unique_ptr<StepProfiler> profiler = start(bench);
  bench.runner->set_profiler(profiler.get());
  bench.device->set_plan({.launch_fails_at = 3});
  std::vector<float> logits;
  EXPECT_FALSE(bench.forward(testing::make_batch({{ids(16)}}, Rows::kAll), logits, true).ok());
  bench.device->set_plan({});
  bench.logits({{ids(16)}});
  bench.runner->set_profiler(nullptr);
  ASSERT_EQ(profiler->forwards().size(), 1u);
  EXPECT_EQ(profiler->forwards()[0].decision.runner, RunnerKind::kPrefill);
}

}  // namespace
}  // namespace tessera
