// A node that leaves the group or sends what the other nodes cannot use.
//
// Catches: a wait for a node that has left; a node that stays although another one is lost; a truncated message that is
// used; an error that does not name its origin or that is reported twice.
#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <future>
#include <mutex>
#include <string>

#include "faults.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns how errors name the ranks of node 1.
std::string ranks_of_node_1(const Topology& of) {
  const int each = of.ranks() / of.nodes;
  if (each == 1) return "; rank 1)";
  return "; ranks " + std::to_string(each) + " to " + std::to_string(2 * each - 1) + ")";
}

// The other nodes end with an error, so that the supervisors of their processes notice it.
TEST_P(LeavingNode, EndsAllOtherNodes) {
  std::promise<void> told;
  std::once_flag first;  // further nodes are lost after node 1
  Group group(of());
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  EXPECT_TRUE(group.engine().health().ok());
  group.engine().peers().when_lost([&] { std::call_once(first, [&] { told.set_value(); }); });
  group.node(1).leave();
  EXPECT_EQ(told.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_THAT(group.engine().health().message(), HasSubstr(of().node(1)));
  EXPECT_THAT(tokens(group.engine()).status().message(),
              HasSubstr(ranks_of_node_1(of()) + " is gone: the node left the group"));
  EXPECT_TRUE(group.end_of(1).ok());
  for (int other = 2; other < of().nodes; ++other) {
    const Status ended = group.end_of(other);
    EXPECT_EQ(ended.code(), StatusCode::kDeviceLost);
    EXPECT_THAT(ended.message(), AllOf(HasSubstr(of().node(0) + " ("), HasSubstr(of().node(1) + " ("),
                                       HasSubstr(ranks_of_node_1(of()))));
  }
  expect_end(group);
}

// Makes a request and some of its steps.
void begin_steps(Engine& engine) {
  ASSERT_TRUE(engine.submit(request(9, 40)).ok());
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(engine.step().ok());
}

Status steps_until_error(Engine& engine) {
  Status failed;
  while (failed.ok() && !engine.idle()) failed = engine.step().status();
  return failed;
}

TEST_P(NodeLeavingAmidSteps, EndsAllAndIsNamedOnce) {
  Group group(of());
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  begin_steps(group.engine());
  EXPECT_EQ(group.engine().stats().drafts.drafted > 0, of().drafts);
  ::testing::internal::CaptureStderr();
  group.node(1).leave();
  const Status failed = steps_until_error(group.engine());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(failed.message(), AllOf(HasSubstr(of().node(1)), HasSubstr(ranks_of_node_1(of()))));
  EXPECT_THAT(log, Not(HasSubstr("next-token layer failed")));
  EXPECT_TRUE(group.end_of(1).ok());
  expect_end(group);
}

TEST_P(TruncatedValue, EndsAllAndIsNamed) {
  Group group(of());
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  begin_steps(group.engine());
  const std::array<std::byte, 3> cut{};
  ASSERT_TRUE(group.node(1).send(0, FrameKind::kStageValue, std::array{std::span<const std::byte>(cut)}).ok());
  const Status failed = steps_until_error(group.engine());
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(failed.message(), AllOf(HasSubstr(of().node(1)), HasSubstr("between stages in 3 bytes")));
  EXPECT_EQ(group.end_of(1).code(), StatusCode::kDeviceLost);
  expect_end(group);
}

}  // namespace
}  // namespace tessera::testing
