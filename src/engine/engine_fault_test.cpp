// Catches: a start that fails although it would succeed with fewer graphs; an error without advice; a fault in service
// that ends other requests or leaks pages; and wrong tokens after a fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/device/testing/fake_device.h"
#include "tessera/engine/engine_test_util.h"

namespace tessera {
namespace {

using test::request;
using test::small_options;
using ::testing::AnyOf;
using ::testing::HasSubstr;

EngineOptions few_sizes() {
  EngineOptions options = small_options();
  options.device = "cpu";
  options.graphs.piecewise_tokens = {8, 32};
  options.graphs.decode_batches = {1, 2};
  return options;
}

struct Faulty {
  FakeDevice* device = nullptr;  // owned by the engine
  std::unique_ptr<Engine> engine;
};

Result<Faulty> start(const FaultPlan& plan, const EngineOptions& options = few_sizes()) {
  std::unique_ptr<FakeDevice> device = TRY(FakeDevice::create(plan, {.threads = 1}));
  Faulty faulty{.device = device.get(), .engine = nullptr};
  faulty.engine = TRY(Engine::create(options, std::move(device)));
  return faulty;
}

std::vector<TokenId> tokens(Engine& engine, std::int64_t prompt = 11) {
  const Request asked = request(prompt, 6);
  const Result<std::vector<Completion>> done = engine.run({&asked, 1});
  EXPECT_TRUE(done.ok()) << done.status().to_string();
  return done.ok() ? (*done)[0].output_ids : std::vector<TokenId>();
}

const std::vector<TokenId>& right_tokens() {
  static const std::vector<TokenId> made = tokens(*start({}).value().engine);
  return made;
}

TEST(EngineFaults, OutOfMemoryAtAnyAllocationOfTheStart) {
  int errors = 0;
  for (int n = 1;; ++n) {
    ASSERT_LT(n, 300);
    // A failed creation destroys the device, so its counts are checked only if there is an engine.
    Result<Faulty> faulty = start({.out_of_memory_at = n});
    if (faulty.ok()) {
      const bool past_the_last = faulty->device->counts().faults == 0;
      faulty->device->set_plan({});
      EXPECT_EQ(tokens(*faulty->engine), right_tokens()) << n;
      if (past_the_last) break;
      continue;
    }
    ++errors;
    EXPECT_EQ(faulty.status().code(), StatusCode::kResourceExhausted) << n << ": " << faulty.status().to_string();
    EXPECT_THAT(faulty.status().message(), HasSubstr("injected")) << n;
    EXPECT_THAT(faulty.status().message(), AnyOf(HasSubstr("mem_fraction_static"), HasSubstr("max_total_tokens"))) << n;
  }
  EXPECT_GT(errors, 5);
}

TEST(EngineFaults, AFailedCaptureLeavesAWorkingEngine) {
  for (std::int64_t FaultPlan::*const fault :
       {&FaultPlan::begin_recording_fails_at, &FaultPlan::end_recording_fails_at}) {
    for (int n = 1;; ++n) {
      ASSERT_LT(n, 100);
      FaultPlan plan;
      plan.*fault = n;
      Result<Faulty> faulty = start(plan);
      ASSERT_TRUE(faulty.ok()) << n << ": " << faulty.status().to_string();
      const ModelRunner& runner = faulty->engine->runner();
      const std::size_t dropped = runner.prefill().report().dropped.size() + runner.decode().report().dropped.size();
      const bool past_the_last = faulty->device->counts().faults == 0;
      EXPECT_EQ(dropped, past_the_last ? 0U : 1U) << n;
      faulty->device->set_plan({});
      EXPECT_EQ(tokens(*faulty->engine), right_tokens()) << n;
      if (past_the_last) break;
    }
  }
}

TEST(EngineFaults, WithoutASingleGraphTheEngineServesEagerly) {
  EngineOptions options = few_sizes();
  options.graphs.piecewise_tokens = {32};
  options.graphs.mode = GraphMode::kPiecewise;
  Result<Faulty> faulty = start({.begin_recording_fails_at = 1}, options);
  ASSERT_TRUE(faulty.ok()) << faulty.status().to_string();
  EXPECT_EQ(tokens(*faulty->engine), right_tokens());
  EXPECT_EQ(faulty->engine->stats().forwards.forwards(Reason::kNothingCaptured), 6);
}

TEST(EngineFaults, AReplayThatFailsCostsNoRequest) {
  Faulty faulty = start({}).value();
  for (int n = 1; n <= 12; ++n) {
    faulty.device->set_plan({.replay_fails_at = n});
    EXPECT_EQ(tokens(*faulty.engine), right_tokens()) << n;
    faulty.engine->flush_prefix_cache();
  }
  EXPECT_GE(faulty.engine->stats().forwards.forwards(Reason::kReplayFailed), 5);
}

TEST(EngineFaults, AFailedLaunchFailsItsOwnRequestsOnly) {
  EngineOptions options = few_sizes();
  options.graphs.mode = GraphMode::kOff;
  Faulty faulty = start({}, options).value();
  const std::int64_t free_pages = faulty.engine->stats().fullest_group().used_pages;
  for (int n = 1; n < 200; n += 13) {
    faulty.device->set_plan({.launch_fails_at = n});
    const Request asked = request(11, 6);
    const Result<std::vector<Completion>> done = faulty.engine->run({&asked, 1});
    EXPECT_FALSE(done.ok()) << n;
    EXPECT_THAT(done.status().message(), HasSubstr("injected"));
    faulty.device->set_plan({});
    EXPECT_EQ(tokens(*faulty.engine), right_tokens()) << n;
    EXPECT_EQ(faulty.engine->stats().fullest_group().used_pages, free_pages) << "pages of a failed request";
  }
}

TEST(EngineFaults, ALostDeviceFailsEveryRequest) {
  Faulty faulty = start({}).value();
  faulty.device->set_plan({.lost_from = 40});
  const Request asked = request(11, 6);
  const Result<std::vector<Completion>> done = faulty.engine->run({&asked, 1});
  EXPECT_EQ(done.status().code(), StatusCode::kDeviceLost) << done.status().to_string();
}

TEST(EngineFaults, IdleWorkThatFailsLeavesTheEngineServing) {
  EngineOptions options = few_sizes();
  options.graphs.capture = CaptureMode::kCore;
  options.graphs.piecewise_tokens = {8, 10, 12, 32};
  Faulty faulty = start({}, options).value();
  faulty.device->set_plan({.end_recording_fails_at = 1});
  const auto more = [&] {
    const Result<bool> left = faulty.engine->idle_work();
    EXPECT_TRUE(left.ok()) << left.status().to_string();
    return left.ok() && *left;
  };
  for (int n = 0; n < 100 && more(); ++n) {
  }
  EXPECT_EQ(faulty.engine->runner().prefill().report().dropped.size(), 1U);
  EXPECT_EQ(tokens(*faulty.engine), right_tokens());
}

}  // namespace
}  // namespace tessera
