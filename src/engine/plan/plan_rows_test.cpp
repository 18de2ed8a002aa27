// Catches: a plan in which max_running_requests leaves no rows for drafts; rows, graphs or states for requests that
// never run; and a plan without drafts that differs from what max_running_requests says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/engine/plan/engine_plan_test_util.h"

namespace tessera {
namespace {

using test::Change;
using test::plan;
using ::testing::IsEmpty;

// Plans with up to `drafts` drafts from the text of each request.
EnginePlan drafting(
    std::int64_t running, std::int64_t drafts, const Change& change = [](EngineOptions&) {}) {
  return plan([&](EngineOptions& o) {
    o.max_running_requests = running;
    o.drafts.source = DraftSource::kText;
    o.drafts.most_tokens = drafts;
    change(o);
  });
}

TEST(PlanRows, WithoutDraftsAreTheRunningRequests) {
  for (const std::int64_t running : {1, 5, 300}) {
    const EnginePlan p = plan([&](EngineOptions& o) { o.max_running_requests = running; });
    EXPECT_EQ(p.max_running, running);
    EXPECT_EQ(p.runner.max_requests, running);
  }
}

TEST(PlanRows, HaveRoomForTheDraftsOfAllRunningRequests) {
  const EnginePlan one = drafting(1, 3);
  EXPECT_EQ(one.max_running, 1);
  EXPECT_EQ(one.runner.max_requests, 4);
  EXPECT_EQ(one.model.max_requests, 4);
  EXPECT_EQ(one.runner.decode_sizes, decode_ladder(4));
  EXPECT_THAT(one.notes, IsEmpty());
  EXPECT_EQ(drafting(20, 8).runner.max_requests, 180);
}

TEST(PlanRows, EndWithTheLargestDecodeGraph) {
  EXPECT_EQ(drafting(64, 8).runner.max_requests, 256);
  EXPECT_EQ(drafting(0, 8).runner.max_requests, 256) << "the default number of requests";
  EXPECT_EQ(drafting(300, 8).runner.max_requests, 300) << "a row for each request";
  const auto larger = [](EngineOptions& o) { o.graphs.decode_max_batch = 400; };
  EXPECT_EQ(drafting(64, 8, larger).runner.max_requests, 400);
  EXPECT_EQ(drafting(64, 8, larger).runner.decode_sizes.back(), 400);
}

TEST(PlanRows, StayBeyondSmallerGraphs) {
  const EnginePlan largest = drafting(4, 3, [](EngineOptions& o) { o.graphs.decode_max_batch = 8; });
  EXPECT_EQ(largest.runner.max_requests, 16);
  EXPECT_EQ(largest.runner.decode_sizes, decode_ladder(8));
  const EnginePlan listed = drafting(4, 3, [](EngineOptions& o) { o.graphs.decode_batches = {1, 4, 64}; });
  EXPECT_EQ(listed.runner.max_requests, 16);
  EXPECT_EQ(listed.runner.decode_sizes, (std::vector<std::int64_t>{1, 4}));
}

TEST(PlanRows, HaveNoStatesOrPagesOfTheirOwn) {
  const auto hybrid = [](DraftSource source) {
    return plan([&](EngineOptions& o) {
      o.model_path = testing::data_path("drafts/mtp-qwen3.5");
      o.max_running_requests = 2;
      o.drafts.source = source;
    });
  };
  const EnginePlan drafts = hybrid(DraftSource::kLayer);
  EXPECT_EQ(drafts.runner.max_requests, 8) << "three drafts of each request";
  const EnginePlan plain = hybrid(DraftSource::kNone);
  EXPECT_EQ(plain.runner.max_requests, 2);
  EXPECT_EQ(drafts.runner.num_pages, plain.runner.num_pages);
  EXPECT_EQ(drafts.memory.context_tokens, plain.memory.context_tokens);
}

TEST(PlanRows, AreNoMoreThanTheTokensOfAForward) {
  const auto rows = [](std::int64_t running) {
    return plan([&](EngineOptions& o) {
             o.model_path = testing::data_path("drafts/mtp-glm4-moe");
             o.max_running_requests = running;
             o.chunked_prefill_size = 16;
             o.drafts.source = DraftSource::kLayer;
           })
        .runner.max_requests;
  };
  EXPECT_EQ(rows(8), 16);
  EXPECT_EQ(rows(1), 9);
}

TEST(PlanRows, OfALayerLeaveRoomForTextDrafts) {
  const EnginePlan p = plan([](EngineOptions& o) {
    o.model_path = testing::data_path("drafts/mtp-glm4-moe");
    o.max_running_requests = 2;
    o.drafts.source = DraftSource::kLayer;
  });
  EXPECT_EQ(p.runner.max_drafts, 3);
  EXPECT_EQ(p.runner.max_requests, 2 * (1 + 8));
}

}  // namespace
}  // namespace tessera
