// Tests the plan of operators that keep a state for each sequence. Catches: batches whose state slots or draft tokens
// contradict their requests and still reach kernels; plans that take another amount of memory than bytes_needed()
// returns.
#include "tessera/ops/contract/state_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tessera/ops/recurrent/state_op_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;

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

TEST(StatePlan, RefusesCheckpointsThatCannotBeStored) {
  StateBench bench("causal_conv", false, 2);
  const auto refused = [&](std::vector<StateCheckpoint> checkpoints, std::int32_t drafts = 0) {
    ForwardBatch batch = state_batch({{.rows = 5, .slot = 1, .drafts = drafts}, {.rows = 3, .slot = 2}});
    batch.checkpoints = std::move(checkpoints);
    return bench.plan(batch).message();
  };
  EXPECT_EQ(refused({{.request = 0, .rows = 4, .slot = PageId(3)}, {.request = 1, .rows = 1, .slot = PageId(4)}}), "");
  EXPECT_THAT(refused({{.request = 0, .rows = 5, .slot = PageId(3)}}), HasSubstr("a checkpoint after 5 of its 5 rows"));
  EXPECT_THAT(refused({{.request = 0, .rows = 0, .slot = PageId(3)}}), HasSubstr("a checkpoint after 0 of its 5 rows"));
  EXPECT_THAT(refused({{.request = 2, .rows = 1, .slot = PageId(3)}}), HasSubstr("a checkpoint of request 2"));
  EXPECT_THAT(refused({{.request = 1, .rows = 1, .slot = PageId(3)}, {.request = 1, .rows = 2, .slot = PageId(4)}}),
              HasSubstr("a checkpoint of request 1 after one of request 1"));
  EXPECT_THAT(refused({{.request = 0, .rows = 1, .slot = PageId(0)}}), HasSubstr("checkpoint slot 0 is not among"));
  EXPECT_THAT(refused({{.request = 0, .rows = 1, .slot = PageId(12)}}), HasSubstr("checkpoint slot 12 is not among"));
  EXPECT_THAT(refused({{.request = 0, .rows = 1, .slot = PageId(2)}}), HasSubstr("has its checkpoint slot 2"));
  EXPECT_THAT(refused({{.group = 1, .request = 0, .rows = 1, .slot = PageId(3)}}), HasSubstr("in cache group 1"));
  EXPECT_THAT(refused({{.request = 0, .rows = 1, .slot = PageId(3)}}, 2), HasSubstr("both drafts and a checkpoint"));
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
