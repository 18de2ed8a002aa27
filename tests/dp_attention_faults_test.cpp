// Catches: an engine that waits forever for a failed rank; an engine that continues with other graphs than its peers;
// an error that does not name the rank at fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <thread>

#include "dp_attention.h"
#include "faulty_ranks.h"

namespace tessera {
namespace {

using testing::devices;
using testing::Engines;
using ::testing::HasSubstr;
using testing::plans;
using testing::request;
using testing::Served;

// Starts the engines. The device of rank 1 fails as `plan` says.
Result<Engines> start(const FaultPlan& plan) {
  EngineOptions options = testing::faulty_options(testing::faulty_registry(), 1);
  options.model_path = testing::data_path("goldens/qwen3-moe");
  options.replicas = 2;
  options.ep_size = 2;
  options.dp_attention = true;
  plans = {};
  plans[1] = plan;
  return testing::start(options);
}

std::vector<std::vector<Request>> some_for_each() {
  return {{request(11, 6), request(3, 8)}, {request(20, 4), request(5, 9), request(7, 7)}};
}

TEST(DpAttentionFaults, AForwardThatFailsOnOneRankEndsAll) {
  for (const std::int64_t n : {1, 2, 5, 9}) {
    const Result<Engines> engines = start({});
    ASSERT_TRUE(engines.ok()) << engines.status().to_string();
    devices[1]->set_plan({.replay_fails_at = n});
    const Served served(*engines, some_for_each());
    EXPECT_EQ(devices[1]->counts().faults, 1) << n;
    for (const std::size_t rank : {0U, 1U}) {
      const Status health = (*engines)[rank]->health();
      EXPECT_EQ(health.code(), StatusCode::kDeviceLost) << n;
      EXPECT_THAT(health.message(), HasSubstr("rank 1 of 2 left the group: ")) << n;
      EXPECT_THAT(health.message(), HasSubstr("injected")) << n;
      EXPECT_THAT(served.errors(rank),
                  ::testing::Contains(::testing::Property(&Status::message, HasSubstr("injected"))))
          << n << ", rank " << rank;
    }
  }
}

// A lost forward is noticed only when it is collected. By then the other ranks have received rows that were never
// computed. A lost device fails every later call.
TEST(DpAttentionFaults, OneRanksLostForwardOrDeviceEndsAll) {
  for (const FaultPlan& plan :
       {FaultPlan{.replay_lost_at = 1}, FaultPlan{.lost_from = 1}, FaultPlan{.lost_from = 12}}) {
    const Result<Engines> engines = start({});
    ASSERT_TRUE(engines.ok()) << engines.status().to_string();
    devices[1]->set_plan(plan);
    const Served served(*engines, some_for_each());
    EXPECT_GT(devices[1]->counts().faults, 0);
    for (const std::unique_ptr<Engine>& engine : *engines) {
      EXPECT_EQ(engine->health().code(), StatusCode::kDeviceLost) << plan.lost_from;
      EXPECT_THAT(engine->health().message(), HasSubstr("injected")) << plan.lost_from;
    }
  }
}

// If one rank has not captured a size, the other ranks cannot use this size either.
TEST(DpAttentionFaults, OneRanksFailedCaptureEndsTheStart) {
  int failed = 0;
  for (std::int64_t FaultPlan::*const fault :
       {&FaultPlan::begin_recording_fails_at, &FaultPlan::end_recording_fails_at, &FaultPlan::out_of_memory_at}) {
    for (int n = 1; n < 100; n += 3) {
      FaultPlan plan;
      plan.*fault = n;
      const Result<Engines> engines = start(plan);
      if (engines.ok()) {  // past the last capture or allocation of the start
        EXPECT_EQ(devices[1]->counts().faults, 0) << n;
        break;
      }
      ++failed;
      // The rank reports its failed capture at once, so the error is not a time-out.
      EXPECT_THAT(engines.status().message(),
                  ::testing::AnyOf(HasSubstr("injected"), HasSubstr("different sizes of graphs")))
          << n;
    }
  }
  EXPECT_GT(failed, 6);
}

// A rank without work sleeps. If the failure did not wake it, it would stay in service although its group has ended.
TEST(DpAttentionFaults, AFailureBetweenForwardsWakesOtherRanks) {
  const Result<Engines> engines = start({});
  ASSERT_TRUE(engines.ok()) << engines.status().to_string();
  const auto nothing = [](std::span<EngineThread::Event>) {};
  std::promise<void> told;
  EngineThread idle(*(*engines)[0], nothing, [&] { told.set_value(); });
  EngineThread failing(*(*engines)[1], nothing);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // rank 0 has nothing left to do
  failing.post([](Engine&) { throw std::runtime_error("injected"); });
  ASSERT_EQ(told.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(idle.health().code(), StatusCode::kDeviceLost);
  EXPECT_THAT(idle.health().message(), HasSubstr("injected"));
}

}  // namespace
}  // namespace tessera
