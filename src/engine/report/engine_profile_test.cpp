// Catches: a forward that a profile describes with the facts of another forward; a profile that continues after its
// end; and texts or tokens that change because of a profile.
#include "tessera/engine/report/engine_profile.h"

#include <gmock/gmock.h>

#include "tessera/engine/engine_test_util.h"

namespace tessera {
namespace {

using test::demo_options;
using test::EngineRuns;
using test::request;

class EngineProfiles : public EngineRuns {};
INSTANTIATE_TEST_SUITE_P(Overlap, EngineProfiles, ::testing::Bool(), test::overlap_name);

TEST_P(EngineProfiles, EveryForwardIsDescribed) {
  const std::unique_ptr<Engine> engine = make(demo_options());
  const std::vector<Request> requests = {request(20, 6, 1), request(70, 3, 2)};
  const Result<std::vector<Completion>> want = engine->run(requests);
  ASSERT_TRUE(want.ok());
  engine->flush_prefix_cache();
  const std::int64_t before = engine->stats().steps;

  ASSERT_TRUE(engine->start_profile().ok());
  const Result<std::vector<Completion>> done = engine->run(requests);
  ASSERT_TRUE(done.ok());
  const EngineProfile profile = engine->end_profile();
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ((*done)[i].output_ids, (*want)[i].output_ids);
  EXPECT_EQ(std::ssize(profile.steps), engine->stats().steps - before);
  EXPECT_EQ(profile.steps.size(), profile.forwards.size());
  std::int64_t tokens = 0;
  for (const StepFacts& step : profile.steps) tokens += step.tokens;
  // A step that is scheduled ahead may compute one token past a request's end.
  EXPECT_GE(tokens, 20 + 70 + 5 + 2);
  EXPECT_LE(tokens, 20 + 70 + 5 + 2 + 2);
  EXPECT_EQ(profile.steps.front().phase, ForwardPhase::kPrefill);
  EXPECT_EQ(profile.steps.back().phase, ForwardPhase::kDecode);
  EXPECT_EQ(profile.steps.front().requests, 2);
  for (const HostWork work : {HostWork::kSchedule, HostWork::kPlan, HostWork::kInputs, HostWork::kLaunch,
                              HostWork::kWait, HostWork::kCollect, HostWork::kText}) {
    std::vector<bool> seen(profile.forwards.size());
    for (const HostSpan& span : profile.host)
      if (span.work == work && span.forward < std::ssize(seen)) seen[static_cast<std::size_t>(span.forward)] = true;
    EXPECT_THAT(seen, ::testing::Each(true)) << host_work_name(work);
  }

  EXPECT_EQ(engine->profiler(), nullptr);
  ASSERT_TRUE(engine->run(requests).ok());
  ASSERT_TRUE(engine->start_profile().ok());
  EXPECT_TRUE(engine->end_profile().steps.empty());
}

}  // namespace
}  // namespace tessera
