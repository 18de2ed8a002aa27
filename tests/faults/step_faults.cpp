// Faults in a forward.
//
// Catches: ranks that disagree after a fault of one of them; a fault of one request that ends other requests; a failure
// that is not noticed when the forward is collected; a graph that a rank still replays although it failed too often; a
// rank that waits forever for another rank; an error that does not name its origin; pages that a failed request keeps.
#include <gmock/gmock.h>

#include <optional>

#include "faults.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Property;

auto name_rank(const Topology& of, int rank) {
  return Each(Property(&Status::message, AllOf(HasSubstr(of.rank(rank)), HasSubstr("injected"))));
}

// Makes requests again and again, while rank 0 and then rank 1 has the fault at one replay after another, up to `last`.
void fail_replays(const Cell& cell, std::int64_t FaultPlan::*fault, int last) {
  const bool ends_all = cell.ends == Ends::kAll;
  for (const int rank : {0, 1}) {
    std::optional<Group> group;
    // A group that goes on would drop a graph after three failures in a row, so it skips every other replay.
    for (int n = 1; n <= last; n += ends_all ? 1 : 2) {
      if (!group || ends_all) group.emplace(cell.of);
      ASSERT_TRUE(group->started.ok()) << group->started.to_string();
      FaultPlan plan;
      plan.*fault = n;
      EXPECT_THAT(group->fail_requests(rank, plan), name_rank(cell.of, rank)) << n;
      if (ends_all) group->expect_ended(n);
      if (!ends_all) group->expect_right(n);
    }
  }
}

TEST_P(FailedReplay, EndsItsRequestOrAll) { fail_replays(GetParam(), &FaultPlan::replay_fails_at, of().last_replay); }

// A lost replay is noticed only when its forward is collected. By then the other ranks have received values that were
// never computed. Only a prompt's first replay is lost: a decode has one graph, with all sums over the ranks.
TEST_P(LostReplay, EndsItsRequestOrAll) { fail_replays(GetParam(), &FaultPlan::replay_lost_at, 1); }

TEST_P(FailedLaunch, EndsItsRequestOnly) {
  Group group(of(), {}, [](EngineOptions& options) { options.graphs.mode = GraphMode::kOff; });
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  const std::int64_t used = group.engine().stats().fullest_group().used_pages;
  for (int n = 1; n < of().last_launch; n += of().last_launch / 8) {
    const int rank = n % of().ranks();
    EXPECT_THAT(group.fail_requests(rank, {.launch_fails_at = n}), name_rank(of(), rank)) << n;
    group.engine().flush_prefix_cache();
    EXPECT_EQ(group.engine().stats().fullest_group().used_pages, used) << "pages of a failed request";
    expect_end(group, n);
    group.engine().flush_prefix_cache();
  }
}

TEST_P(RepeatedFault, DropsTheSizeOnAllRanks) {
  Group group(of());
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(group.fail_requests(1, {.replay_fails_at = 1})[0].ok());
  const CaptureReport& report = group.engine().runner().prefill().report();
  ASSERT_EQ(report.dropped.size(), 1U);
  EXPECT_EQ(report.dropped[0].first, 32);
  expect_end(group);
  EXPECT_GT(group.engine().stats().forwards.forwards(Reason::kAboveLargestSize), 0);
}

// The failing rank has taken part in all sums, so rank 0 notices the failure only when the forward is collected.
TEST_P(RepeatedFaultOfTheLastPiece, DropsTheSizeOnAllRanks) {
  Group group(of());
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  Engine& engine = group.engine();
  const std::int64_t last = engine.runner().prefill().executable().graph().num_pieces();
  // The first chunk of 32 tokens computes no logits, so no gather of logits over the ranks follows its last piece.
  const Request asked = request(40, 2);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(engine.runner().prefill().report().dropped.empty()) << i;
    engine.flush_prefix_cache();
    devices[1]->set_plan({.replay_fails_at = last});
    const Status failed = engine.run({&asked, 1}).status();
    EXPECT_THAT(failed.message(), AllOf(HasSubstr(of().rank(1)), HasSubstr("injected"))) << i;
  }
  devices[1]->set_plan({});
  const CaptureReport& report = engine.runner().prefill().report();
  ASSERT_EQ(report.dropped.size(), 1U);
  EXPECT_EQ(report.dropped[0].first, 32);
  expect_end(group);
}

// If a step fails, its requests end, and later requests get the right tokens.
TEST_P(FaultAmongRequests, EndsOnlyThoseOfItsStep) {
  for (const int rank : {0, 1}) {
    Group group(of());
    ASSERT_TRUE(group.started.ok()) << group.started.to_string();
    Engine& engine = group.engine();
    FakeDevice& device = device_of(rank);
    const std::int64_t used = engine.stats().fullest_group().used_pages;
    for (int n = 3; n <= 30; n += 9) {
      for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine.submit(request(9 + i, 8)).ok());
      device.set_plan({.replay_fails_at = n});
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
          EXPECT_THAT(event.error.message(), AllOf(HasSubstr(of().rank(rank)), HasSubstr("injected")));
        }
      }
      EXPECT_EQ(failed + finished, 4);
      EXPECT_EQ(device.counts().faults > 0, failed > 0) << n;
      device.set_plan({});
      expect_end(group, n);
      engine.flush_prefix_cache();
      EXPECT_EQ(engine.stats().fullest_group().used_pages, used) << "pages of a failed request";
    }
  }
}

}  // namespace
}  // namespace tessera::testing
