// Catches: a capture method of a device that is not called, or that is called for parts that must not be captured; and
// a failed capture after which some parts of the forward still have graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/piecewise/executable_test_util.h"
#include "tessera/piecewise/keeping_backend_test_util.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using testing::ExecutableBench;
using ::testing::HasSubstr;
using testing::kCuts;
using testing::KeepingBackend;
using testing::tokens;
using testing::two_cuts;

TEST(DeviceBackend, CapturesPiecesItsOwnWay) {
  ExecutableBench bench = two_cuts();
  KeepingBackend backend;
  bench.use_backend(backend);
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(9)).ok());
  ASSERT_TRUE(executable->capture(tokens(9)).ok());
  EXPECT_THAT(backend.captured, ElementsAre("piece 0 at T=9", "piece 2 at T=9", "piece 4 at T=9"));
  EXPECT_EQ(bench.device().counts().begun_recordings, 0);
  EXPECT_TRUE(executable->captured(tokens(9)));
  EXPECT_EQ(executable->num_graphs(), 3);
  EXPECT_EQ(executable->graph_stats().nodes, 8);
  EXPECT_EQ(bench.replay(*executable, 9, 1), bench.reference(9, 1));
  EXPECT_EQ(backend.launches, 3);
  EXPECT_EQ(bench.run(*executable, 9, 2), bench.reference(9, 2));
  EXPECT_EQ(backend.launches, 3) << "an eager run launches no graph";
}

TEST(DeviceBackend, ItsErrorLeavesTheBucketWithoutGraphs) {
  ExecutableBench bench = two_cuts();
  KeepingBackend backend;
  backend.refused = "piece 2 at T=9";
  bench.use_backend(backend);
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(9)).ok());
  EXPECT_THAT(executable->capture(tokens(9)).message(), HasSubstr("no graph for piece 2 at T=9"));
  EXPECT_FALSE(executable->captured(tokens(9)));
  EXPECT_EQ(executable->num_graphs(), 0);
  EXPECT_EQ(bench.replay(*executable, 9, 1), bench.reference(9, 1));
  EXPECT_EQ(backend.launches, 0);
  backend.refused.clear();
  ASSERT_TRUE(executable->capture(tokens(9)).ok());
  EXPECT_EQ(bench.replay(*executable, 9, 1), bench.reference(9, 1));
}

TEST(DeviceBackend, ForwardsStayInPiecesUnlessBackendsCaptureWholeOnes) {
  ExecutableBench bench = two_cuts();
  KeepingBackend backend;
  bench.use_backend(backend);
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(9)).ok());
  ASSERT_TRUE(executable->capture(tokens(9)).ok());
  const Status status = executable->capture_full(tokens(9));
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("captures single parts"));
  EXPECT_FALSE(executable->has_full_graph(tokens(9)));
  EXPECT_EQ(bench.replay(*executable, 9, 1), bench.reference(9, 1));
}

}  // namespace
}  // namespace tessera
