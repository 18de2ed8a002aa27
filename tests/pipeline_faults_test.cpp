// Catches: stages that disagree after a fault of one of them, a stage that waits forever for values that another one
// never sends, values of a failed step that are taken for the next one's, a fault that ends more than the requests in
// flight, an error that does not name its origin, and a thread that is left running.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "faulty_ranks.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::devices;
using ::testing::HasSubstr;
using testing::plans;
using testing::request;
using testing::tokens;

// Rank 0 is the last stage, rank 1 the first.
EngineOptions options_for(int stages = 2) {
  EngineOptions options = testing::faulty_options(testing::faulty_registry(), 1);
  options.pp_size = stages;
  return options;
}

Result<std::unique_ptr<Engine>> start(const EngineOptions& options, const FaultPlan& of_first_stage = {}) {
  plans = {};
  plans[1] = of_first_stage;
  return Engine::create(options);
}

void expect_right(Engine& engine, int n) { testing::expect_right(engine, options_for(1), n); }

std::string of_two(int rank) { return "rank " + std::to_string(rank) + " of 2"; }

using PipelineFaults = testing::FaultyRanks;

TEST_F(PipelineFaults, OutOfMemoryOfAStageAtTheStart) {
  int errors = 0;
  for (int n = 1;; n += 5) {
    ASSERT_LT(n, 300);
    const Result<std::unique_ptr<Engine>> engine = start(options_for(), {.out_of_memory_at = n});
    if (engine.ok()) {
      const bool past_the_last = devices[1]->counts().faults == 0;
      devices[1]->set_plan({});
      expect_right(**engine, n);
      if (past_the_last) break;
      continue;
    }
    ++errors;
    EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted) << n << ": " << engine.status().to_string();
    EXPECT_THAT(engine.status().message(), AllOf(HasSubstr(of_two(1)), HasSubstr("injected"))) << n;
  }
  EXPECT_GT(errors, 2);
}

TEST_F(PipelineFaults, OneStagesFailedCaptureIsDroppedInAll) {
  for (int n = 1;; n += 2) {
    ASSERT_LT(n, 100);
    const Result<std::unique_ptr<Engine>> engine = start(options_for(), {.end_recording_fails_at = n});
    ASSERT_TRUE(engine.ok()) << n << ": " << engine.status().to_string();
    const ModelRunner& runner = (*engine)->runner();
    const bool past_the_last = devices[1]->counts().faults == 0;
    std::vector<std::pair<std::int64_t, Status>> dropped = runner.prefill().report().dropped;
    for (const auto& size : runner.decode().report().dropped) dropped.push_back(size);
    ASSERT_EQ(dropped.size(), past_the_last ? 0U : 1U) << n;
    for (const auto& [size, why] : dropped) EXPECT_THAT(why.message(), HasSubstr(of_two(1))) << n << " " << size;
    devices[1]->set_plan({});
    expect_right(**engine, n);
    if (past_the_last) break;
  }
}

TEST_F(PipelineFaults, AFailedReplayFailsStepsInFlightOnly) {
  for (const int rank : {0, 1}) {
    const std::unique_ptr<Engine> engine = start(options_for()).value();
    for (int n = 1; n <= 7; ++n) {
      devices[static_cast<std::size_t>(rank)]->set_plan({.replay_fails_at = n});
      const Status failed = tokens(*engine).status();
      ASSERT_FALSE(failed.ok()) << n;
      EXPECT_THAT(failed.message(), AllOf(HasSubstr(of_two(rank)), HasSubstr("injected"))) << n;
      devices[static_cast<std::size_t>(rank)]->set_plan({});
      while (!engine->idle()) ASSERT_TRUE(engine->step().ok());
      expect_right(*engine, n);
    }
  }
}

// Several requests have steps in flight in both stages. Those with a failed step end, and later ones get the right
// tokens.
TEST_F(PipelineFaults, AFaultWithStepsOfSeveralGroupsInFlight) {
  for (const int rank : {0, 1}) {
    const std::unique_ptr<Engine> engine = start(options_for()).value();
    const std::int64_t used = engine->stats().fullest_group().used_pages;
    for (int n = 3; n <= 30; n += 9) {
      for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine->submit(request(9 + i, 8)).ok());
      devices[static_cast<std::size_t>(rank)]->set_plan({.replay_fails_at = n});
      int failed = 0;
      int finished = 0;
      for (int steps = 0; !engine->idle(); ++steps) {
        ASSERT_LT(steps, 1000);
        const auto events = engine->step();
        ASSERT_TRUE(events.ok()) << events.status().to_string();
        for (const RequestEvent& event : *events) {
          if (event.finish == FinishReason::kNone) continue;
          (event.finish == FinishReason::kError ? failed : finished) += 1;
          if (event.finish != FinishReason::kError) continue;
          EXPECT_THAT(event.error.message(), AllOf(HasSubstr(of_two(rank)), HasSubstr("injected")));
        }
      }
      EXPECT_EQ(failed + finished, 4);
      EXPECT_EQ(devices[static_cast<std::size_t>(rank)]->counts().faults > 0, failed > 0) << n;
      devices[static_cast<std::size_t>(rank)]->set_plan({});
      expect_right(*engine, n);
      engine->flush_prefix_cache();
      EXPECT_EQ(engine->stats().fullest_group().used_pages, used) << "pages of a failed request";
    }
  }
}

// A fault fails the requests of its own step; the steps behind it, which read its pages, are computed again.
TEST_F(PipelineFaults, StepsBehindAFailedOneAreComputedAgain) {
  for (const int rank : {0, 1}) {
    const std::unique_ptr<Engine> engine = start(options_for()).value();
    int alone = 0;
    for (std::int64_t n = 1; n <= 9; n += 2)
      alone += testing::first_alone_fails(*engine, options_for(1), rank, &FaultPlan::replay_fails_at, n) ? 1 : 0;
    EXPECT_GT(alone, 1) << rank;
  }
}

TEST_F(PipelineFaults, AnyOfThreeStagesMayFailMidRequest) {
  EngineOptions options = options_for(3);
  options.graphs.mode = GraphMode::kOff;
  const std::unique_ptr<Engine> engine = start(options).value();
  for (int n = 1; n < 80; n += 11) {
    const int rank = n % 3;
    devices[static_cast<std::size_t>(rank)]->set_plan({.launch_fails_at = n});
    const Status failed = tokens(*engine).status();
    ASSERT_FALSE(failed.ok()) << n;
    EXPECT_THAT(failed.message(), HasSubstr("rank " + std::to_string(rank) + " of 3")) << n;
    devices[static_cast<std::size_t>(rank)]->set_plan({});
    while (!engine->idle()) ASSERT_TRUE(engine->step().ok());
    expect_right(*engine, n);
  }
}

TEST_F(PipelineFaults, DropsASizeWhoseReplaysFailInOneStage) {
  const std::unique_ptr<Engine> engine = start(options_for()).value();
  for (int i = 0; i < 3; ++i) {
    devices[1]->set_plan({.replay_fails_at = 1});
    EXPECT_FALSE(tokens(*engine).ok());
  }
  devices[1]->set_plan({});
  const CaptureReport& report = engine->runner().prefill().report();
  ASSERT_EQ(report.dropped.size(), 1U);
  EXPECT_EQ(report.dropped[0].first, 32);
  expect_right(*engine, 0);
}

TEST_F(PipelineFaults, AStagesLostDeviceEndsAll) {
  const std::unique_ptr<Engine> engine = start(options_for()).value();
  devices[1]->set_plan({.lost_from = 12});
  const Status failed = tokens(*engine).status();
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost) << failed.to_string();
  EXPECT_THAT(failed.message(), HasSubstr(of_two(1)));
  ASSERT_FALSE(engine->idle()) << "the request is still queued";
  EXPECT_EQ(engine->step().status().code(), StatusCode::kDeviceLost);
}

TEST_F(PipelineFaults, FailedIdleWorkLeavesAllStagesServing) {
  EngineOptions options = options_for();
  options.graphs.capture = CaptureMode::kCore;
  options.graphs.piecewise_tokens = {8, 10, 12, 32};
  const std::unique_ptr<Engine> engine = start(options).value();
  devices[1]->set_plan({.end_recording_fails_at = 1});
  for (int n = 0; n < 200; ++n) {
    const Result<bool> left = engine->idle_work();
    ASSERT_TRUE(left.ok()) << left.status().to_string();
    if (!*left) break;
  }
  EXPECT_EQ(engine->runner().prefill().report().dropped.size(), 1U);
  EXPECT_GT(engine->runner().costs().size(), 2U) << "rank 0 measures what all stages run";
  expect_right(*engine, 0);
}

}  // namespace
}  // namespace tessera
