// Catches: stages of two processes that disagree after a fault of one of them, a stage that waits forever for values
// that another node never sends, values of a failed step that are taken for the next one's, a truncated message that is
// read, an error that does not name its origin, and a node that is left running.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "faulty_nodes.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::devices;
using ::testing::HasSubstr;
using testing::Nodes;
using testing::plans;
using testing::request;
using testing::tokens;

// Rank 0 is the last stage; rank 1 is the first, on the other node.
EngineOptions options_for(int stages = 2) {
  EngineOptions options = testing::faulty_options(testing::faulty_registry(), 1);
  options.pp_size = stages;
  return options;
}

void expect_right(Nodes& nodes, int n) { testing::expect_right(nodes.engine(), options_for(1), n); }

std::string of_two(int rank) { return "rank " + std::to_string(rank) + " of 2"; }

using StageNodeFaults = testing::FaultyRanks;

TEST_F(StageNodeFaults, OutOfMemoryOfAStageAtTheStart) {
  int errors = 0;
  for (int n = 1; n < 60; n += 5) {
    Nodes nodes({.out_of_memory_at = n}, options_for());
    if (nodes.started.ok()) break;
    ++errors;
    EXPECT_EQ(nodes.started.code(), StatusCode::kResourceExhausted) << n << ": " << nodes.started.to_string();
    EXPECT_THAT(nodes.started.message(), AllOf(HasSubstr(of_two(1)), HasSubstr("injected"))) << n;
  }
  EXPECT_GT(errors, 2);
}

TEST_F(StageNodeFaults, OneStagesFailedCaptureIsDroppedInAll) {
  for (int n = 1; n < 8; n += 3) {
    Nodes nodes({.end_recording_fails_at = n}, options_for());
    ASSERT_TRUE(nodes.started.ok()) << n << ": " << nodes.started.to_string();
    const ModelRunner& runner = nodes.engine().runner();
    std::vector<std::pair<std::int64_t, Status>> dropped = runner.prefill().report().dropped;
    for (const auto& size : runner.decode().report().dropped) dropped.push_back(size);
    ASSERT_EQ(dropped.size(), devices[1]->counts().faults == 0 ? 0U : 1U) << n;
    for (const auto& [size, why] : dropped) EXPECT_THAT(why.message(), HasSubstr(of_two(1))) << n << " " << size;
    devices[1]->set_plan({});
    expect_right(nodes, n);
  }
}

TEST_F(StageNodeFaults, AFailedReplayFailsStepsInFlightOnly) {
  for (const int rank : {0, 1}) {
    Nodes nodes({}, options_for());
    ASSERT_TRUE(nodes.started.ok()) << nodes.started.to_string();
    for (int n = 1; n <= 7; ++n) {
      devices[static_cast<std::size_t>(rank)]->set_plan({.replay_fails_at = n});
      const Status failed = tokens(nodes.engine()).status();
      ASSERT_FALSE(failed.ok()) << n;
      EXPECT_THAT(failed.message(), AllOf(HasSubstr(of_two(rank)), HasSubstr("injected"))) << n;
      devices[static_cast<std::size_t>(rank)]->set_plan({});
      while (!nodes.engine().idle()) ASSERT_TRUE(nodes.engine().step().ok());
      expect_right(nodes, n);
    }
  }
}

// Several requests have steps in flight on both nodes. Those with a failed step end, and later ones get the right
// tokens.
TEST_F(StageNodeFaults, AFaultWithStepsOfSeveralGroupsInFlight) {
  for (const int rank : {0, 1}) {
    Nodes nodes({}, options_for());
    ASSERT_TRUE(nodes.started.ok()) << nodes.started.to_string();
    Engine& engine = nodes.engine();
    for (int n = 3; n <= 30; n += 9) {
      for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine.submit(request(9 + i, 8)).ok());
      devices[static_cast<std::size_t>(rank)]->set_plan({.replay_fails_at = n});
      int failed = 0;
      int finished = 0;
      for (int steps = 0; !engine.idle(); ++steps) {
        ASSERT_LT(steps, 1000);
        const auto events = engine.step();
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
      expect_right(nodes, n);
    }
  }
}

TEST_F(StageNodeFaults, AStagesLostDeviceEndsAll) {
  Nodes nodes({}, options_for());
  ASSERT_TRUE(nodes.started.ok()) << nodes.started.to_string();
  devices[1]->set_plan({.lost_from = 12});
  const Status failed = tokens(nodes.engine()).status();
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost) << failed.to_string();
  EXPECT_THAT(failed.message(), HasSubstr(of_two(1)));
}

// Each node has two stages: faults on the link between nodes and on the links within a node.
TEST_F(StageNodeFaults, ALaunchThatFailsInAnyOfFourStages) {
  EngineOptions options = options_for(4);
  options.model_path = testing::data_path("goldens/qwen3.5-text");
  options.graphs.mode = GraphMode::kOff;
  options.device = "faulty";
  EngineOptions one = options;
  one.pp_size = 1;
  const std::vector<TokenId> right = tokens(*Engine::create(one).value()).value();
  Nodes nodes({}, options, 2);
  ASSERT_TRUE(nodes.started.ok()) << nodes.started.to_string();
  for (int n = 5; n < 60; n += 11) {
    const auto rank = static_cast<std::size_t>(n % 4);
    devices[rank]->set_plan({.launch_fails_at = n});
    const Status failed = tokens(nodes.engine()).status();
    ASSERT_FALSE(failed.ok()) << n;
    EXPECT_THAT(failed.message(), HasSubstr("rank " + std::to_string(rank) + " of 4")) << n;
    devices[rank]->set_plan({});
    while (!nodes.engine().idle()) ASSERT_TRUE(nodes.engine().step().ok());
    nodes.engine().flush_prefix_cache();
    EXPECT_EQ(tokens(nodes.engine()).value(), right) << n;
  }
}

TEST_F(StageNodeFaults, ANodeThatLeavesMidStepEndsAll) {
  Nodes nodes({}, options_for());
  ASSERT_TRUE(nodes.started.ok()) << nodes.started.to_string();
  ASSERT_TRUE(nodes.engine().submit(request(9, 40)).ok());
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(nodes.engine().step().ok());
  nodes.leave();
  Status failed;
  while (failed.ok()) failed = nodes.engine().step().status();
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("node 1 of 2"), HasSubstr("rank 1")));
  EXPECT_TRUE(nodes.end().ok());
}

TEST_F(StageNodeFaults, ATruncatedValueEndsAll) {
  Nodes nodes({}, options_for());
  ASSERT_TRUE(nodes.started.ok()) << nodes.started.to_string();
  ASSERT_TRUE(nodes.engine().submit(request(9, 40)).ok());
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(nodes.engine().step().ok());
  const std::array<std::byte, 3> cut{};
  ASSERT_TRUE(nodes.group().send(0, FrameKind::kStageValue, std::array{std::span<const std::byte>(cut)}).ok());
  Status failed;
  while (failed.ok()) failed = nodes.engine().step().status();
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("node 1 of 2"), HasSubstr("between stages in 3 bytes")));
  EXPECT_EQ(nodes.end().code(), StatusCode::kDeviceLost);
}

}  // namespace
}  // namespace tessera
