// Tests faults of ranks that make drafts with a draft layer. rank_faults_test.cpp tests faults of other steps.
//
// Catches: ranks that disagree after a fault within a draft; a rank that waits forever for another rank's part of a
// draft; a fault that gives a request wrong tokens; a graph that a rank still replays although the graph failed too
// often; an error that does not name its origin or that is reported twice; a thread or a node that is left running.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "faulty_nodes.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::devices;
using ::testing::HasSubstr;
using testing::Nodes;
using ::testing::Not;
using testing::plans;
using testing::request;
using testing::tokens;

EngineOptions one_rank() { return testing::faulty_options(testing::faulty_registry(), 1); }

EngineOptions drafting() {
  EngineOptions options = testing::faulty_options(testing::faulty_registry(), 2);
  options.max_running_requests = 8;
  options.drafts.source = DraftSource::kEagle;
  options.drafts.model_path = testing::data_path("drafts/llama-eagle3");
  options.drafts.for_all_requests = true;  // this layer's drafts are seldom kept
  return options;
}

constexpr int kHidden = 64;  // values of an embedding of goldens/llama

std::string of_two(int rank) { return "rank " + std::to_string(rank) + " of 2"; }

// The status and the log of requests that ran while one launch of a rank failed.
struct Outcome {
  Status status;
  std::string log;
  bool failed_once = false;  // the launch that was to fail was reached
};

Outcome fail_launch(Engine& engine, int rank, std::int64_t n) {
  FakeDevice& device = *devices[static_cast<std::size_t>(rank)];
  engine.flush_prefix_cache();
  device.set_plan({.launch_fails_at = n});
  ::testing::internal::CaptureStderr();
  const Result<std::vector<TokenId>> got = tokens(engine);
  Outcome outcome{.status = got.status(), .log = ::testing::internal::GetCapturedStderr()};
  outcome.failed_once = device.counts().faults > 0;
  device.set_plan({});
  while (!engine.idle()) EXPECT_TRUE(engine.step().ok());
  if (got.ok()) {
    EXPECT_EQ(*got, testing::right_tokens(one_rank())) << n;
  }
  return outcome;
}

class RankDraftFaults : public testing::FaultyRanks, public ::testing::WithParamInterface<int> {
 protected:
  // Fails launch 1 of a rank, then launch 4, launch 7 and so on, each while new requests run.
  static void fail_launches(Engine& engine, int rank) {
    int within_drafts = 0;
    int within_forwards = 0;
    for (std::int64_t n = 1;; n += 3) {
      const Outcome outcome = fail_launch(engine, rank, n);
      if (!outcome.failed_once) break;
      if (outcome.status.ok()) {
        ++within_drafts;
        EXPECT_THAT(outcome.log,
                    AllOf(HasSubstr("the next-token layer failed"), HasSubstr(of_two(rank)), HasSubstr("injected")))
            << n;
      } else {
        ++within_forwards;
        EXPECT_THAT(outcome.status.message(), AllOf(HasSubstr(of_two(rank)), HasSubstr("injected"))) << n;
      }
      testing::expect_right(engine, one_rank(), static_cast<int>(n));
      if (HasFailure()) return;
    }
    EXPECT_GT(within_drafts, 10);
    EXPECT_GT(within_forwards, 5);
  }

  // In each of three steps, fails the first replay of a rank. This replay makes the second draft token. It is the only
  // replay with a single row, because one of the two requests gets no drafts (its prompt is given as embeddings). Each
  // forward, in contrast, gives the draft layer two rows. After three failures the graph for one row is dropped, and no
  // rank replays it. If one rank still replayed it, the ranks' exchanges would not match, or that rank would count more
  // replays.
  static void fail_replays(Engine& engine, int rank, const std::vector<Completion>& want) {
    const GraphRunner& drafts = engine.runner().runner(RunnerRole::kDraftDecode);
    std::vector<RequestId> ids;
    for (const Request& asked : two_requests()) ids.push_back(engine.submit(asked).value());
    ASSERT_TRUE(engine.step().ok());  // the prompts
    for (int failures = 0; failures < 3; ++failures) {
      EXPECT_TRUE(drafts.captured(1)) << failures;
      FakeDevice& device = *devices[static_cast<std::size_t>(rank)];
      device.set_plan({.replay_fails_at = 1});
      ::testing::internal::CaptureStderr();
      EXPECT_TRUE(engine.step().ok());
      EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                  AllOf(HasSubstr("the next-token layer failed"), HasSubstr(of_two(rank)), HasSubstr("replay failed")));
      EXPECT_EQ(device.counts().faults, 1);
    }
    EXPECT_FALSE(drafts.captured(1));
    EXPECT_TRUE(drafts.captured(2));
    for (FakeDevice* device : {devices[0], devices[1]}) device->set_plan({});
    const std::int64_t drafted = engine.stats().drafts.drafted;
    ::testing::internal::CaptureStderr();
    while (!engine.idle()) EXPECT_TRUE(engine.step().ok());
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("failed"))) << "all ranks run operators";
    for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(engine.take(ids[i])->output_ids, want[i].output_ids) << i;
    EXPECT_GT(engine.stats().drafts.drafted, drafted + 3);
    EXPECT_GT(devices[0]->counts().replays, 10);
    EXPECT_EQ(devices[1]->counts().replays, devices[0]->counts().replays);
  }
  static std::vector<Request> two_requests() {
    std::vector<Request> requests{request(0, 30), request(11, 30)};
    for (int i = 0; i < 7 * kHidden; ++i)
      requests[0].input_embeds.push_back(static_cast<float>(i * 37 % 101 - 50) * 1e-3F);
    return requests;
  }
  static std::vector<Completion> plain_completions() {
    return Engine::create(one_rank()).value()->run(two_requests()).value();
  }
};

TEST_P(RankDraftFaults, AFailedDraftCostsNoRequest) {
  plans = {};
  const std::unique_ptr<Engine> engine = Engine::create(drafting()).value();
  fail_launches(*engine, GetParam());
}

TEST_P(RankDraftFaults, AFailedDraftOfNodesCostsNoRequest) {
  Nodes nodes({}, drafting());
  ASSERT_TRUE(nodes.started.ok()) << nodes.started.to_string();
  fail_launches(nodes.engine(), GetParam());
}

TEST_P(RankDraftFaults, ThreeFailedReplaysDropTheGraphOnAllRanks) {
  const std::vector<Completion> want = plain_completions();
  plans = {};
  const std::unique_ptr<Engine> engine = Engine::create(drafting()).value();
  fail_replays(*engine, GetParam(), want);
}

TEST_P(RankDraftFaults, ThreeFailedReplaysDropTheGraphOnAllNodes) {
  const std::vector<Completion> want = plain_completions();
  Nodes nodes({}, drafting());
  ASSERT_TRUE(nodes.started.ok()) << nodes.started.to_string();
  fail_replays(nodes.engine(), GetParam(), want);
}

INSTANTIATE_TEST_SUITE_P(Of, RankDraftFaults, ::testing::Values(0, 1),
                         [](const auto& rank) { return "Rank" + std::to_string(rank.param); });

// In each round the device is lost at a later call of a request, until the call would come after the request's end.
TEST_F(RankDraftFaults, ALostDeviceIsToldOnceAndNamed) {
  int lost = 0;
  for (std::int64_t call = 20;; call += 40) {
    plans = {};
    const std::unique_ptr<Engine> engine = Engine::create(drafting()).value();
    devices[1]->set_plan({.lost_from = call});
    ::testing::internal::CaptureStderr();
    const Status failed = tokens(*engine).status();
    const std::string log = ::testing::internal::GetCapturedStderr();
    if (failed.ok()) break;
    ++lost;
    EXPECT_EQ(failed.code(), StatusCode::kDeviceLost) << call << ": " << failed.to_string();
    EXPECT_THAT(failed.message(), HasSubstr(of_two(1))) << call;
    EXPECT_THAT(log, Not(HasSubstr("next-token layer failed"))) << call;
  }
  EXPECT_GT(lost, 3);
}

TEST_F(RankDraftFaults, ANodeThatLeavesIsToldOnceAndNamed) {
  Nodes nodes({}, drafting());
  ASSERT_TRUE(nodes.started.ok()) << nodes.started.to_string();
  ASSERT_TRUE(nodes.engine().submit(request(9, 40)).ok());
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(nodes.engine().step().ok());
  EXPECT_GT(nodes.engine().stats().drafts.drafted, 0);
  ::testing::internal::CaptureStderr();
  nodes.leave();
  Status failed;
  while (failed.ok()) failed = nodes.engine().step().status();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("node 1 of 2"), HasSubstr("rank 1")));
  EXPECT_THAT(log, Not(HasSubstr("next-token layer failed")));
  EXPECT_TRUE(nodes.end().ok());
}

// Nodes whose draft layers differ would draft different tokens.
TEST_F(RankDraftFaults, AnotherDraftLayerIsNamed) {
  EngineOptions leads = drafting();
  leads.nnodes = 2;
  EngineOptions follows = leads;
  follows.node_rank = 1;
  follows.drafts.model_path = testing::data_path("drafts/qwen3-moe-eagle3");
  const std::unique_ptr<FakeDevice> device = FakeDevice::create({}, {.threads = 1}).value();
  const NodeHello leader = node_hello(leads, device->properties()).value();
  EXPECT_THAT(check_hello(leader, node_hello(follows, device->properties()).value()).message(),
              HasSubstr("the draft layer: "));
  follows = leads;
  follows.node_rank = 1;
  ++follows.drafts.layer_steps;
  EXPECT_THAT(check_hello(leader, node_hello(follows, device->properties()).value()).message(),
              HasSubstr("speculative_num_steps: "));
  follows.drafts = {};
  EXPECT_THAT(check_hello(leader, node_hello(follows, device->properties()).value()).message(),
              HasSubstr("speculative_algorithm: "));
}

}  // namespace
}  // namespace tessera
