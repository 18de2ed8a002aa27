// Catches: requests that cannot draft because max_running_requests of them run; more requests than that at once; drafts
// that change an output there; and memory for their rows that the plan does not predict.
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/engine/drafts/drafts_test_util.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/runner/memory/prediction.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using test::make_engine;
using test::options_for_drafts;
using test::outputs_of;
using test::request;

struct FewRunning {
  const char* model;
  std::int64_t running;  // max_running_requests
};

class FewRunningDraft : public ::testing::TestWithParam<FewRunning> {
 protected:
  static EngineOptions options_of(DraftSource source) {
    EngineOptions options = options_for_drafts(GetParam().model);
    options.max_running_requests = GetParam().running;
    options.drafts.source = source;
    options.drafts.for_all_requests = true;
    return options;
  }
  static std::vector<Request> requests() {
    return {request(12, 40), request(30, 25, 2), request(9, 30, 3), request(14, 40, 4), request(1, 30, 5)};
  }
};

TEST_P(FewRunningDraft, AlthoughAsManyRunAsMay) {
  const std::unique_ptr<Engine> engine = make_engine(options_of(DraftSource::kLayer));
  for (const Request& each : requests()) ASSERT_TRUE(engine->submit(each).ok());
  std::int64_t most = 0;
  std::int64_t drafted_by_all = 0;  // in steps before and after which max_running_requests ran
  while (!engine->idle()) {
    const EngineStats before = engine->stats();
    ASSERT_TRUE(engine->step().ok());
    const EngineStats after = engine->stats();
    most = std::max(most, after.running);
    if (std::min(before.running, after.running) == GetParam().running)
      drafted_by_all += after.drafts.drafted - before.drafts.drafted;
  }
  EXPECT_EQ(most, GetParam().running);
  EXPECT_GT(drafted_by_all, 20);
}

TEST_P(FewRunningDraft, OutputsAreThoseOfPlainDecodes) {
  const std::unique_ptr<Engine> plain = make_engine(options_of(DraftSource::kNone));
  const std::unique_ptr<Engine> drafting = make_engine(options_of(DraftSource::kLayer));
  EXPECT_EQ(outputs_of(*drafting, requests()), outputs_of(*plain, requests()));
  EXPECT_GT(drafting->stats().drafts.kept, 0);
}

TEST_P(FewRunningDraft, MemoryIsThatOfThePlan) {
  const EngineOptions options = options_of(DraftSource::kLayer);
  const std::unique_ptr<Engine> engine = make_engine(options);
  outputs_of(*engine, requests());
  const std::unique_ptr<Device> device = open_device(options).value();
  const EnginePlan plan = plan_engine(options, *device).value();
  const MemoryReport planned = *predict_memory(plan.graphs, plan.runner, *device);
  const MemoryReport taken = engine->runner().memory();
  for (const MemoryUse use : {MemoryUse::kStaticInputs, MemoryUse::kPlans, MemoryUse::kArena, MemoryUse::kStepResults})
    EXPECT_EQ(taken[use], planned[use]) << memory_use_name(use);
}

// Catches in particular a comparison that needs a state or page for each row.
TEST_P(FewRunningDraft, EveryGraphIsVerified) {
  const std::unique_ptr<Engine> engine = make_engine(options_of(DraftSource::kLayer));
  EXPECT_GT(engine->runner().options().decode_sizes.back(), 3);
  const Result<VerifyReport> report = verify(engine->runner(), /*show_progress=*/false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->equal());
}

INSTANTIATE_TEST_SUITE_P(Models, FewRunningDraft,
                         ::testing::Values(FewRunning{"drafts/mtp-glm4-moe", 1}, FewRunning{"drafts/mtp-glm4-moe", 2},
                                           FewRunning{"drafts/mtp-qwen3.5", 1}, FewRunning{"drafts/mtp-qwen3.5", 2}),
                         [](const auto& given) {
                           const bool has_states = std::string(given.param.model).ends_with("qwen3.5");
                           return (has_states ? "States" : "Pages") + std::to_string(given.param.running);
                         });

}  // namespace
}  // namespace tessera
