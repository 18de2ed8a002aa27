// Catches: ranks that start with different graphs after a fault of one of them; a start that waits forever for the
// failed rank; an error that does not name its origin.
#include <gmock/gmock.h>

#include "faults.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// For n = 1, 1 + step, …, starts a group and calls `check(group, n)`. `fault` names a kind of call. In this group,
// rank 1's n-th call of this kind fails. Ends after a start that makes fewer than n such calls. On two nodes, n grows
// faster, because starts are slower there.
template <class Check>
void each_start(const Topology& of, std::int64_t FaultPlan::*fault, int step, const Check& check) {
  bool past_the_last = false;
  for (int n = 1; !past_the_last; n += of.nodes > 1 ? 2 * step + 1 : step) {
    ASSERT_LT(n, 300);
    FaultPlan plan;
    plan.*fault = n;
    Group group(of, plan);
    check(group, n);
    if (!group.started.ok()) continue;
    past_the_last = devices[1]->counts().faults == 0;
    devices[1]->set_plan({});
    group.expect_right(n);  // would hang if a rank had other graphs than its peers
  }
}

TEST_P(MissingMemory, EndsTheStart) {
  int errors = 0;
  each_start(of(), &FaultPlan::out_of_memory_at, 3, [&](Group& group, int n) {
    if (group.started.ok()) {
      // Ranks of one engine drop a graph that lacks memory. Engines must have equal graphs from the start on.
      EXPECT_TRUE(of().engines == 1 || devices[1]->counts().faults == 0) << n;
      return;
    }
    ++errors;
    if (of().engines > 1) {
      EXPECT_THAT(group.started.message(), AnyOf(HasSubstr("injected"), HasSubstr("different sizes of graphs"))) << n;
      return;
    }
    EXPECT_EQ(group.started.code(), StatusCode::kResourceExhausted) << n << ": " << group.started.to_string();
    EXPECT_THAT(group.started.message(), AllOf(HasSubstr(of().rank(1)), HasSubstr("injected"))) << n;
  });
  EXPECT_EQ(errors > 2, ends_all()) << errors;
}

// If one of several engines has not captured a size, the others cannot use this size either.
TEST_P(FailedCapture, DropsTheSizeOrEndsTheStart) {
  for (std::int64_t FaultPlan::*const fault :
       {&FaultPlan::begin_recording_fails_at, &FaultPlan::end_recording_fails_at}) {
    int errors = 0;
    each_start(of(), fault, 2, [&](Group& group, int n) {
      if (!group.started.ok()) {
        ++errors;
        // The rank reports its failed capture at once, so the error is not a time-out.
        EXPECT_THAT(group.started.message(), AnyOf(HasSubstr("injected"), HasSubstr("different sizes of graphs"))) << n;
        return;
      }
      const bool fails = devices[1]->counts().faults > 0;
      EXPECT_FALSE(fails && ends_all()) << n;
      const auto dropped = group.dropped();
      ASSERT_EQ(dropped.size(), fails ? 1U : 0U) << n;
      for (const auto& [size, why] : dropped) EXPECT_THAT(why.message(), HasSubstr(of().rank(1))) << n << " " << size;
    });
    EXPECT_EQ(errors > 0, ends_all());
  }
}

TEST_P(FailedIdleWork, LeavesAllRanksServing) {
  Group group(of(), {}, [](EngineOptions& options) {
    options.graphs.capture = CaptureMode::kCore;
    options.graphs.piecewise_tokens = {8, 10, 12, 32};
  });
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  devices[1]->set_plan({.end_recording_fails_at = 1});
  for (int n = 0; n < 200; ++n) {
    const Result<bool> left = group.engine().idle_work();
    ASSERT_TRUE(left.ok()) << left.status().to_string();
    if (!*left) break;
  }
  EXPECT_EQ(group.engine().runner().prefill().report().dropped.size(), 1U);
  EXPECT_GT(group.engine().runner().costs().size(), 2U) << "rank 0 measures what all ranks run";
  expect_end(group);
}

}  // namespace
}  // namespace tessera::testing
