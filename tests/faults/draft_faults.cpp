// Faults of ranks that make drafts with a draft layer.
//
// Catches: ranks that disagree after a fault within a draft; a rank that waits forever for another rank's part of a
// draft; a fault that gives a request wrong tokens; a graph that a rank still replays although the graph failed too
// often; an error that does not name its origin.
#include <gmock/gmock.h>

#include <string>

#include "faults.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kHidden = 64;  // values of an embedding of goldens/llama

// The status and the log of requests that ran while one launch of a rank failed.
struct Outcome {
  Status status;
  std::string log;
  bool failed_once = false;  // the launch that was to fail was reached
};

Outcome fail_launch(Engine& engine, const Topology& of, int rank, std::int64_t n) {
  FakeDevice& device = device_of(rank);
  engine.flush_prefix_cache();
  device.set_plan({.launch_fails_at = n});
  ::testing::internal::CaptureStderr();
  const Result<std::vector<TokenId>> got = tokens(engine);
  Outcome outcome{.status = got.status(), .log = ::testing::internal::GetCapturedStderr()};
  outcome.failed_once = device.counts().faults > 0;
  device.set_plan({});
  while (!engine.idle()) EXPECT_TRUE(engine.step().ok());
  if (got.ok()) {
    EXPECT_EQ(*got, right_tokens(of)) << n;
  }
  return outcome;
}

// Fails launch 1 of a rank, then launch 4, launch 7 and so on, each while new requests run.
void fail_launches(Group& group, const Topology& of, int rank) {
  int within_drafts = 0;
  int within_forwards = 0;
  for (std::int64_t n = 1;; n += 3) {
    const Outcome outcome = fail_launch(group.engine(), of, rank, n);
    if (!outcome.failed_once) break;
    if (outcome.status.ok()) {
      ++within_drafts;
      EXPECT_THAT(outcome.log,
                  AllOf(HasSubstr("the next-token layer failed"), HasSubstr(of.rank(rank)), HasSubstr("injected")))
          << n;
    } else {
      ++within_forwards;
      EXPECT_THAT(outcome.status.message(), AllOf(HasSubstr(of.rank(rank)), HasSubstr("injected"))) << n;
    }
    group.expect_right(n);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(within_drafts, 10);
  EXPECT_GT(within_forwards, 5);
}

TEST_P(FailedDraft, CostsNoRequest) {
  for (const int rank : {0, 1}) {
    Group group(of());
    ASSERT_TRUE(group.started.ok()) << group.started.to_string();
    fail_launches(group, of(), rank);
    expect_end(group);
  }
}

std::vector<Request> two_requests() {
  std::vector<Request> requests{request(0, 30), request(11, 30)};
  for (int i = 0; i < 7 * kHidden; ++i)
    requests[0].input_embeds.push_back(static_cast<float>(i * 37 % 101 - 50) * 1e-3F);
  return requests;
}

// In each of three steps, fails the first replay of a rank. This replay makes the second draft token. It is the only
// replay with a single row, because one of the two requests gets no drafts (its prompt is given as embeddings). Each
// forward, in contrast, gives the draft layer two rows. After three failures the graph for one row is dropped, and no
// rank replays it. If one rank still replayed it, the ranks' exchanges would not match, or that rank would count more
// replays.
void fail_replays_of_drafts(Engine& engine, const Topology& of, int rank, const std::vector<Completion>& want) {
  const GraphRunner& drafts = engine.runner().runner(RunnerRole::kDraftDecode);
  std::vector<RequestId> ids;
  for (const Request& asked : two_requests()) ids.push_back(engine.submit(asked).value());
  ASSERT_TRUE(engine.step().ok());  // the prompts
  for (int failures = 0; failures < 3; ++failures) {
    EXPECT_TRUE(drafts.captured(1)) << failures;
    FakeDevice& device = device_of(rank);
    device.set_plan({.replay_fails_at = 1});
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(engine.step().ok());
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("the next-token layer failed"), HasSubstr(of.rank(rank)), HasSubstr("replay failed")));
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

TEST_P(RepeatedFaultOfADraft, DropsTheGraphOnAllRanks) {
  const std::vector<Completion> want = Engine::create(one_rank(of())).value()->run(two_requests()).value();
  for (const int rank : {0, 1}) {
    Group group(of());
    ASSERT_TRUE(group.started.ok()) << group.started.to_string();
    fail_replays_of_drafts(group.engine(), of(), rank, want);
    expect_end(group);
  }
}

}  // namespace
}  // namespace tessera::testing
