// Tests faults on several topologies. Each test is for one fault. It runs on tensor-parallel ranks and on pipeline
// stages, in one process and in two, with one step in flight and with several. dp_attention_faults_test.cpp tests ranks
// with requests of their own (DP attention), which have an engine each and end together at any fault.
//
// Catches: ranks that disagree after a fault of one of them; a rank that waits forever for another rank; an error that
// does not name its origin; a fault of one request that ends other requests; results or values of a failed step that
// are used as those of a later step; a thread or a node that is left running.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "faulty_nodes.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::devices;
using ::testing::HasSubstr;
using testing::plans;
using testing::request;
using testing::tokens;

struct Topology {
  const char* name;
  int tp_size = 1;
  int pp_size = 1;  // rank 0 belongs to the last stage, rank 1 to the first
  int nodes = 1;    // if 2, rank 1 is on the second node
  bool overlap = false;
  // Numbers of calls. If a rank has a fault at one of these calls, the request fails, and so do the requests in flight
  // with it.
  int last_replay = 11;  // number of a request's last replay, or launch
  int lost_from = 40;    // number of a call in the middle of a request
  // A fault that can make the first of two requests fail while the second one goes on (testing::first_alone_fails). The
  // test injects the fault at one call after another. For each rank, the number of calls at which only the first
  // request fails must be greater than num_alone.
  std::int64_t FaultPlan::*alone_at_fault = &FaultPlan::replay_lost_at;
  int num_alone = 2;
};

constexpr Topology kRanks{.name = "Ranks", .tp_size = 2};
constexpr Topology kRanksOfNodes{.name = "RanksOfNodes", .tp_size = 2, .nodes = 2};
constexpr Topology kStages{.name = "Stages",
                           .pp_size = 2,
                           .last_replay = 7,
                           .lost_from = 12,
                           .alone_at_fault = &FaultPlan::replay_fails_at,
                           .num_alone = 1};
constexpr Topology kStagesOfNodes{.name = "StagesOfNodes",
                                  .pp_size = 2,
                                  .nodes = 2,
                                  .last_replay = 7,
                                  .lost_from = 12,
                                  .alone_at_fault = &FaultPlan::replay_fails_at,
                                  .num_alone = 1};
// Returns a copy of `of` in which each step is enqueued before the preceding step is collected.
constexpr Topology ahead(Topology of, const char* name) {
  of.name = name;
  of.overlap = true;
  return of;
}
constexpr Topology kRanksAhead = ahead(kRanks, "RanksAhead");
constexpr Topology kRanksOfNodesAhead = ahead(kRanksOfNodes, "RanksOfNodesAhead");

void PrintTo(const Topology& of, std::ostream* to) { *to << of.name; }
std::string name_of(const ::testing::TestParamInfo<Topology>& info) { return info.param.name; }

std::string of_two(int rank) { return "rank " + std::to_string(rank) + " of 2"; }

EngineOptions one_rank() { return testing::faulty_options(testing::faulty_registry(), 1); }

// An engine over the ranks. Rank 1's device follows `plan` from the start of the engine on.
class Group {
 public:
  using Change = std::function<void(EngineOptions&)>;
  explicit Group(const Topology& of, const FaultPlan& plan = {}, const Change& change = {}) {
    EngineOptions options = testing::faulty_options(testing::faulty_registry(), of.tp_size);
    options.pp_size = of.pp_size;
    if (of.overlap) options.overlap_schedule = true;
    if (change) change(options);
    if (of.nodes > 1) {
      nodes_.emplace(plan, options, options.tp_size * options.pp_size / of.nodes);
      started = nodes_->started;
      return;
    }
    plans = {};
    plans[1] = plan;
    Result<std::unique_ptr<Engine>> engine = Engine::create(options);
    started = engine.status();
    if (engine.ok()) here_ = *std::move(engine);
  }
  Engine& engine() { return nodes_ ? nodes_->engine() : *here_; }

  // Returns the sizes of prefill and decode graphs that were dropped because a replay failed, each with its error.
  std::vector<std::pair<std::int64_t, Status>> dropped() {
    std::vector<std::pair<std::int64_t, Status>> sizes = engine().runner().prefill().report().dropped;
    for (const auto& size : engine().runner().decode().report().dropped) sizes.push_back(size);
    return sizes;
  }
  Status fail_request(int rank, const FaultPlan& plan) {
    FakeDevice& device = *devices[static_cast<std::size_t>(rank)];
    device.set_plan(plan);
    Status failed = tokens(engine()).status();
    device.set_plan({});
    while (!engine().idle() && failed.code() != StatusCode::kDeviceLost) EXPECT_TRUE(engine().step().ok());
    return failed;
  }
  void expect_right(int n) { testing::expect_right(engine(), one_rank(), n); }

  Status started;

 private:
  std::optional<testing::Nodes> nodes_;
  std::unique_ptr<Engine> here_;
};

class RankFaults : public testing::FaultyRanks, public ::testing::WithParamInterface<Topology> {
 protected:
  // For n = 1, 1 + step, …, starts a group and calls `check(group, n)`. `fault` names a kind of call. In this group,
  // rank 1's n-th call of this kind fails. Ends after a start that makes fewer than n such calls. On two nodes, n grows
  // faster, because starts are slower there.
  void each_start(std::int64_t FaultPlan::*fault, int step, const std::function<void(Group&, int)>& check) {
    bool past_the_last = false;
    for (int n = 1; !past_the_last; n += GetParam().nodes > 1 ? 2 * step + 1 : step) {
      ASSERT_LT(n, 300);
      FaultPlan plan;
      plan.*fault = n;
      Group group(GetParam(), plan);
      check(group, n);
      if (!group.started.ok()) continue;
      past_the_last = devices[1]->counts().faults == 0;
      devices[1]->set_plan({});
      group.expect_right(n);  // would hang if a rank had other graphs than its peers
    }
  }
};
// The tests of StartFaults and StepFaults inject faults that have the same effect with one step in flight as with
// several.
using StartFaults = RankFaults;
using StepFaults = RankFaults;

TEST_P(StartFaults, TheStartFailsWhereOneRankLacksMemory) {
  int errors = 0;
  each_start(&FaultPlan::out_of_memory_at, 3, [&](Group& group, int n) {
    if (group.started.ok()) return;
    ++errors;
    EXPECT_EQ(group.started.code(), StatusCode::kResourceExhausted) << n << ": " << group.started.to_string();
    EXPECT_THAT(group.started.message(), AllOf(HasSubstr(of_two(1)), HasSubstr("injected"))) << n;
  });
  EXPECT_GT(errors, 2);
}

TEST_P(StartFaults, OneRanksFailedCaptureIsDroppedOnAll) {
  for (std::int64_t FaultPlan::*const fault :
       {&FaultPlan::begin_recording_fails_at, &FaultPlan::end_recording_fails_at}) {
    each_start(fault, 2, [](Group& group, int n) {
      ASSERT_TRUE(group.started.ok()) << n << ": " << group.started.to_string();
      const auto dropped = group.dropped();
      ASSERT_EQ(dropped.size(), devices[1]->counts().faults == 0 ? 0U : 1U) << n;
      for (const auto& [size, why] : dropped) EXPECT_THAT(why.message(), HasSubstr(of_two(1))) << n << " " << size;
    });
  }
}

TEST_P(StartFaults, FailedIdleWorkLeavesAllRanksServing) {
  Group group(GetParam(), {}, [](EngineOptions& options) {
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
  group.expect_right(0);
}

TEST_P(StepFaults, AFailedReplayFailsItsOwnRequestOnly) {
  for (const int rank : {0, 1}) {
    Group group(GetParam());
    ASSERT_TRUE(group.started.ok()) << group.started.to_string();
    for (int n = 1; n <= GetParam().last_replay; n += 2) {
      const Status failed = group.fail_request(rank, {.replay_fails_at = n});
      EXPECT_THAT(failed.message(), AllOf(HasSubstr(of_two(rank)), HasSubstr("injected"))) << n;
      group.expect_right(n);
    }
  }
}

TEST_P(StepFaults, DropsASizeWhoseReplaysFailOnOneRank) {
  Group group(GetParam());
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(group.fail_request(1, {.replay_fails_at = 1}).ok());
  const CaptureReport& report = group.engine().runner().prefill().report();
  ASSERT_EQ(report.dropped.size(), 1U);
  EXPECT_EQ(report.dropped[0].first, 32);
  group.expect_right(0);
  EXPECT_GT(group.engine().stats().forwards.forwards(Reason::kAboveLargestSize), 0);
}

// If a step fails, its requests end, and later requests get the right tokens.
TEST_P(StepFaults, AFaultWithSeveralRequestsInService) {
  for (const int rank : {0, 1}) {
    Group group(GetParam());
    ASSERT_TRUE(group.started.ok()) << group.started.to_string();
    Engine& engine = group.engine();
    const std::int64_t used = engine.stats().fullest_group().used_pages;
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
      group.expect_right(n);
      engine.flush_prefix_cache();
      EXPECT_EQ(engine.stats().fullest_group().used_pages, used) << "pages of a failed request";
    }
  }
}

TEST_P(StepFaults, OneRanksLostDeviceEndsTheGroup) {
  Group group(GetParam());
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  devices[1]->set_plan({.lost_from = GetParam().lost_from});
  const Status failed = tokens(group.engine()).status();
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost) << failed.to_string();
  EXPECT_THAT(failed.message(), HasSubstr(of_two(1)));
  ASSERT_FALSE(group.engine().idle()) << "the request is still queued";
  EXPECT_EQ(group.engine().step().status().code(), StatusCode::kDeviceLost);
}

INSTANTIATE_TEST_SUITE_P(Of, StartFaults, ::testing::Values(kRanks, kRanksOfNodes, kStages, kStagesOfNodes), name_of);
INSTANTIATE_TEST_SUITE_P(Of, StepFaults,
                         ::testing::Values(kRanks, kRanksAhead, kRanksOfNodes, kRanksOfNodesAhead, kStages,
                                           kStagesOfNodes),
                         name_of);

// Steps that are enqueued ahead read the keys of the failed step. These keys are undefined and must reach no later
// request.
using FaultsAhead = RankFaults;
TEST_P(FaultsAhead, RecomputesStepsBehindAFailedOne) {
  Group group(GetParam());
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  // Injects faults only into the three forwards that compute prompts. In a decode forward, one graph has all sums over
  // the ranks, so all ranks must replay that graph.
  const std::int64_t last = 3 * group.engine().runner().prefill().executable().graph().num_pieces();
  for (const int rank : {0, 1}) {
    int alone = 0;
    for (std::int64_t n = 1; n <= last; n += 2)
      alone += testing::first_alone_fails(group.engine(), one_rank(), rank, GetParam().alone_at_fault, n) ? 1 : 0;
    EXPECT_GT(alone, GetParam().num_alone) << "the other one goes on";
  }
}
INSTANTIATE_TEST_SUITE_P(Of, FaultsAhead, ::testing::Values(kRanksAhead, kRanksOfNodesAhead, kStages, kStagesOfNodes),
                         name_of);

// Launches fail in groups of two to four ranks that run without graphs. A pipeline needs a model with at least as many
// layers as stages.
class LaunchFaults : public RankFaults {
 protected:
  static EngineOptions with(EngineOptions options, const Topology& of) {
    options.graphs.mode = GraphMode::kOff;
    if (of.pp_size > 1) options.model_path = testing::data_path("goldens/qwen3.5-text");
    return options;
  }
};
TEST_P(LaunchFaults, AFailedLaunchFailsItsOwnRequestOnly) {
  const Topology& of = GetParam();
  const int ranks = of.tp_size * of.pp_size;
  const std::vector<TokenId> right = tokens(*Engine::create(with(one_rank(), of)).value()).value();
  Group group(of, {}, [&](EngineOptions& options) { options = with(options, of); });
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  const std::int64_t used = group.engine().stats().fullest_group().used_pages;
  for (int n = 1; n < of.last_replay; n += of.last_replay / 8) {
    const int rank = n % ranks;
    const Status failed = group.fail_request(rank, {.launch_fails_at = n});
    EXPECT_THAT(failed.message(), HasSubstr("rank " + std::to_string(rank) + " of " + std::to_string(ranks))) << n;
    group.engine().flush_prefix_cache();
    EXPECT_EQ(group.engine().stats().fullest_group().used_pages, used) << "pages of a failed request";
    EXPECT_EQ(tokens(group.engine()).value(), right) << n;
    group.engine().flush_prefix_cache();
  }
}
INSTANTIATE_TEST_SUITE_P(
    Of, LaunchFaults,
    ::testing::Values(Topology{.name = "TwoRanks", .tp_size = 2, .last_replay = 250},
                      Topology{.name = "FourRanks", .tp_size = 4, .last_replay = 250},
                      Topology{.name = "FourRanksOfNodes", .tp_size = 4, .nodes = 2, .last_replay = 250},
                      Topology{.name = "ThreeStages", .pp_size = 3, .last_replay = 60},
                      Topology{.name = "FourStagesOfNodes", .pp_size = 4, .nodes = 2, .last_replay = 60}),
    name_of);

}  // namespace
}  // namespace tessera
