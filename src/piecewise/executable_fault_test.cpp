// Catches: a failed capture after which some parts still have graphs or the stream still records; memory errors that
// crash the process or leave a bucket partly bound; and errors that do not name the part that failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/piecewise/executable_test_util.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::ExecutableBench;
using ::testing::HasSubstr;
using testing::kCuts;
using testing::tokens;
using testing::two_cuts;

constexpr const char* kPieces[] = {"piece 0", "piece 2", "piece 4"};

// Checks that eager runs, a new capture and its replay work after a fault.
void expect_works(ExecutableBench& bench, Executable& executable, std::int64_t size) {
  bench.device().set_plan({});
  EXPECT_FALSE(bench.stream().recording());
  EXPECT_EQ(bench.run(executable, size, 8), bench.reference(size, 8));
  EXPECT_EQ(bench.replay(executable, size, 8), bench.reference(size, 8));
  const Status status = executable.capture(tokens(size));
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(executable.captured(tokens(size)));
  EXPECT_EQ(bench.replay(executable, size, 9), bench.reference(size, 9));
}

class CaptureFault : public ::testing::TestWithParam<std::int64_t FaultPlan::*> {};

TEST_P(CaptureFault, InAnyPieceLeavesTheBucketWithoutGraphs) {
  for (int piece = 0; piece < 3; ++piece) {
    ExecutableBench bench = two_cuts();
    const std::unique_ptr<Executable> executable = *bench.create(kCuts);
    for (const std::int64_t size : {24, 9}) ASSERT_TRUE(executable->bind(tokens(size)).ok());
    ASSERT_TRUE(executable->capture(tokens(24)).ok());
    FaultPlan plan;
    plan.*GetParam() = piece + 1;
    bench.device().set_plan(plan);
    const Status status = executable->capture(tokens(9));
    EXPECT_EQ(bench.device().counts().faults, 1);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(kPieces[piece]), HasSubstr("T=9"), HasSubstr("injected")));
    EXPECT_FALSE(executable->captured(tokens(9)));
    EXPECT_EQ(executable->num_captured(), 1);
    EXPECT_EQ(bench.replay(*executable, 24, 8), bench.reference(24, 8)) << "the other size keeps its graphs";
    expect_works(bench, *executable, 9);
    EXPECT_EQ(executable->num_captured(), 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Executable, CaptureFault,
                         ::testing::Values(&FaultPlan::begin_recording_fails_at, &FaultPlan::end_recording_fails_at),
                         [](const auto& parameter) {
                           return std::string(parameter.param == &FaultPlan::begin_recording_fails_at ? "Begin"
                                                                                                      : "End");
                         });

TEST(ExecutableFaults, AnyLaunchThatFailsWhileRecordingEndsTheCapture) {
  constexpr int kLaunches = 8;  // number of launches in the three pieces of kTwoCuts
  for (int n = 1; n <= kLaunches + 1; ++n) {
    ExecutableBench bench = two_cuts();
    const std::unique_ptr<Executable> executable = *bench.create(kCuts);
    ASSERT_TRUE(executable->bind(tokens(9)).ok());
    bench.device().set_plan({.launch_fails_at = n});
    const Status status = executable->capture(tokens(9));
    EXPECT_EQ(status.ok(), n > kLaunches) << n;
    if (status.ok()) break;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("capturing piece "), HasSubstr("operator "), HasSubstr("T=9")));
    EXPECT_FALSE(executable->captured(tokens(9)));
    expect_works(bench, *executable, 9);
  }
}

TEST(ExecutableFaults, AFullGraphThatFailsLeavesThePieces) {
  constexpr int kLaunches = 10;  // number of launches in the three pieces and the two split ops of kTwoCuts
  for (int n = 1; n <= kLaunches + 1; ++n) {
    ExecutableBench bench = two_cuts();
    const std::unique_ptr<Executable> executable = *bench.create(kCuts);
    ASSERT_TRUE(executable->bind(tokens(9)).ok());
    ASSERT_TRUE(executable->capture(tokens(9)).ok());
    bench.device().set_plan({.launch_fails_at = n});
    const Status status = executable->capture_full(tokens(9));
    EXPECT_EQ(status.ok(), n > kLaunches) << n;
    EXPECT_EQ(executable->has_full_graph(tokens(9)), n > kLaunches);
    if (n <= kLaunches) {
      EXPECT_THAT(status.message(), AllOf(HasSubstr("as one graph"), HasSubstr("T=9")));
    }
    expect_works(bench, *executable, 9);
  }
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(9)).ok());
  ASSERT_TRUE(executable->capture(tokens(9)).ok());
  ASSERT_TRUE(executable->capture_full(tokens(9)).ok());
  bench.device().set_plan({.replay_fails_at = 1});
  EXPECT_THAT(executable->replay_full(tokens(9)).message(), AllOf(HasSubstr("as one graph"), HasSubstr("T=9")));
  expect_works(bench, *executable, 9);
}

TEST(ExecutableFaults, FailedReplaysNameTheirPieceAndTheNextWorks) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(9)).ok());
  ASSERT_TRUE(executable->capture(tokens(9)).ok());
  for (int piece = 0; piece < 3; ++piece) {
    bench.device().set_plan({.replay_fails_at = piece + 1});
    EXPECT_THAT(executable->replay(tokens(9)).message(),
                AllOf(HasSubstr("replaying"), HasSubstr(kPieces[piece]), HasSubstr("T=9")));
    bench.device().set_plan({});
    EXPECT_EQ(bench.replay(*executable, 9, 3), bench.reference(9, 3));
  }
}

TEST(ExecutableFaults, ASplitOpThatFailsNamesItself) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(9)).ok());
  ASSERT_TRUE(executable->capture(tokens(9)).ok());
  bench.device().set_plan({.launch_fails_at = 1});  // in a replay, only the kernels of split ops count as launches
  EXPECT_THAT(executable->replay(tokens(9)).message(),
              AllOf(HasSubstr("split op 1: store"), HasSubstr("operator store (mut %out1)")));
}

TEST(ExecutableFaults, LaterBindingWorksAfterAnyAllocationFailed) {
  for (const MemoryPlanKind memory : {MemoryPlanKind::kPlanned, MemoryPlanKind::kIsolated}) {
    for (int n = 1;; ++n) {
      ASSERT_LT(n, 50);
      ExecutableBench bench = two_cuts();
      const std::unique_ptr<Executable> executable = *bench.create(kCuts, {.largest = {}, .memory = memory});
      bench.device().set_plan({.out_of_memory_at = n});
      const Status status = executable->bind(tokens(24));
      if (bench.device().counts().faults == 0) {
        EXPECT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(n, memory == MemoryPlanKind::kPlanned ? 3 : 11) << "arena or nine values, workspace";
        break;
      }
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << n;
      EXPECT_FALSE(executable->bound(tokens(24)));
      bench.device().set_plan({});
      ASSERT_TRUE(executable->bind(tokens(24)).ok());
      expect_works(bench, *executable, 24);
    }
  }
}

TEST(ExecutableFaults, OutOfMemoryInOneBucketLeavesTheOthers) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(9)).ok());
  ASSERT_TRUE(executable->capture(tokens(9)).ok());
  bench.device().set_plan({.out_of_memory_at = 1});
  EXPECT_FALSE(executable->bind(tokens(24)).ok());
  bench.device().set_plan({});
  EXPECT_TRUE(executable->captured(tokens(9)));
  EXPECT_EQ(bench.replay(*executable, 9, 2), bench.reference(9, 2));
}

TEST(ExecutableFaults, EveryCallReportsALostDevice) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(9)).ok());
  bench.device().set_plan({.lost_from = 1});
  EXPECT_EQ(executable->run(tokens(9)).code(), StatusCode::kDeviceLost);
  EXPECT_EQ(executable->replay(tokens(9)).code(), StatusCode::kDeviceLost);
  EXPECT_EQ(executable->capture(tokens(9)).code(), StatusCode::kDeviceLost);
  EXPECT_EQ(executable->bind(tokens(9)).code(), StatusCode::kDeviceLost);
}

// The capture fails, and binding again would fail too. The reported error must be that of the capture.
TEST(ExecutableFaults, AFailedCaptureReportsItsOwnError) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(9)).ok());
  bench.device().set_plan({.out_of_memory_at = 1, .begin_recording_fails_at = 2});
  const Status status = executable->capture(tokens(9));
  EXPECT_THAT(status.message(), HasSubstr("recording does not begin"));
}

}  // namespace
}  // namespace tessera
