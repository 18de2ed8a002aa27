// Tests the plan of operators that keep a state for each sequence. Catches: batches whose state slots or draft tokens
// contradict their requests and still reach kernels; plans that take another amount of memory than bytes_needed()
// returns.
#include "tessera/ops/contract/state_plan.h"

#include <gtest/gtest.h>

#include "tessera/ops/recurrent/state_op_test_util.h"

namespace tessera::testing {
namespace {

TEST(StatePlan, RefusesBatchesThatContradictThemselves) {
  StateBench bench("op");
  EXPECT_TRUE(bench.plan(state_batch({{.rows = 3, .slot = kNumSlots - 1}})).ok());
  EXPECT_EQ(bench.plan(state_batch({{.slot = kNumSlots}})).code(), StatusCode::kInternal);
  EXPECT_EQ(bench.plan(state_batch({{.slot = -1}})).code(), StatusCode::kInternal);
  EXPECT_EQ(bench.plan(state_batch(std::vector<StateRequest>(17))).code(), StatusCode::kResourceExhausted);

  ForwardBatch batch = state_batch({{}, {.slot = 2}});
  batch.groups[0].own({{PageId(1)}});
  EXPECT_EQ(bench.plan(batch).code(), StatusCode::kInternal);
  batch.groups[0].own({{PageId(1)}, {}});
  EXPECT_NE(bench.plan(batch).message().find("request 1 has no slot"), std::string::npos);
  batch.groups.clear();
  EXPECT_EQ(bench.plan(batch).code(), StatusCode::kInternal);
}

TEST(StatePlan, RefusesMoreDraftsThanASlotHolds) {
  StateBench bench("op", false, 2);
  EXPECT_TRUE(bench.plan(state_batch({{.rows = 3, .before = 5, .drafts = 2, .accepted = 2}})).ok());
  EXPECT_NE(bench.plan(state_batch({{.rows = 4, .drafts = 3}})).message().find("3 new drafts; a slot holds 2"),
            std::string::npos);
  EXPECT_NE(bench.plan(state_batch({{.before = 5, .accepted = 3}})).message().find("3 accepted drafts"),
            std::string::npos);
}

TEST(StatePlan, RefusesDraftsFarBehindAcceptedOnes) {
  StateBench bench("test", false, 2);
  EXPECT_TRUE(bench.plan(state_batch({{.rows = 4, .before = 5, .accepted = 2}})).ok());
  EXPECT_TRUE(bench.plan(state_batch({{.rows = 4, .before = 5, .drafts = 1}})).ok());
  EXPECT_NE(bench.plan(state_batch({{.rows = 4, .before = 5, .drafts = 1, .accepted = 1}}))
                .message()
                .find("request 0 has 3 rows between accepted and new drafts; 1 is accepted"),
            std::string::npos);
}

TEST(StatePlan, TakesTheBytesThatBytesNeededReturns) {
  const PlanArgs args{.nodes = {}, .kernel = "k", .num_pages = 4, .limits = {.max_requests = 37}};
  StepBuffer step;
  const auto plan = StatePlan::create(args, step);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(step.bytes(), StatePlan::bytes_needed(args.limits));
  EXPECT_EQ((*plan)->bytes(), step.bytes());
  EXPECT_FALSE(StatePlan::create({.nodes = {}, .kernel = "k", .limits = {}}, step).ok());
}

}  // namespace
}  // namespace tessera::testing
