// A rank whose device is lost, or whose engine fails between two forwards.
//
// Catches: a rank that waits forever for the lost rank; an error that does not name its origin or that is reported
// twice; an engine without work that stays in service although its group has ended.
#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

#include "adapter_golden.h"
#include "faults.h"
#include "tessera/engine/engine_thread.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// In each round the device is lost at a later call, until the call would come after the requests' end.
TEST_P(LostDevice, EndsAllAndIsNamedOnce) {
  int lost = 0;
  for (std::int64_t call = of().lost_from;; call += of().lost_step) {
    Group group(of());
    ASSERT_TRUE(group.started.ok()) << group.started.to_string();
    ::testing::internal::CaptureStderr();
    const std::vector<Status> reports = group.fail_requests(1, {.lost_from = call});
    const std::string log = ::testing::internal::GetCapturedStderr();
    if (reports[0].ok()) break;
    ++lost;
    for (const Status& report : reports) {
      EXPECT_EQ(report.code(), StatusCode::kDeviceLost) << call << ": " << report.to_string();
      EXPECT_THAT(report.message(), AllOf(HasSubstr(of().rank(1)), HasSubstr("injected"))) << call;
    }
    EXPECT_THAT(log, Not(HasSubstr("next-token layer failed"))) << call;
    expect_end(group, call);
    if (of().engines > 1) continue;
    ASSERT_FALSE(group.engine().idle()) << "the request is still queued";
    EXPECT_EQ(group.engine().step().status().code(), StatusCode::kDeviceLost);
  }
  EXPECT_GT(lost, of().drafts ? 3 : 0);
}

TEST_P(LostDeviceAtAnAdapter, EndsAllAndIsNamed) {
  const Golden golden = read_golden_folder(folder_of("llama-lora/r16-pattern"));
  const Group::Change adapted = [&](EngineOptions& options) {
    options.adapters = {.enabled = true, .limits = {.slots = 2}, .paths = {{.name = "tuned", .path = golden.folder}}};
  };
  Request asked = request(11, 6);
  asked.adapter = "tuned";
  EngineOptions whole = one_rank(of());
  adapted(whole);
  const std::vector<TokenId> right = run_one(*Engine::create(whole).value(), asked).output_ids;
  Group group(of(), {}, adapted);
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  EXPECT_EQ(run_one(group.engine(), asked).output_ids, right);
  // The next request that names the adapter copies the adapter to a slot. This copy is the first call that fails.
  ASSERT_TRUE(load(group.engine(), "tuned", golden.folder, /*replace=*/true).ok());
  devices[1]->set_plan({.lost_from = 1});
  const Status failed = group.engine().run({&asked, 1}).status();
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost) << failed.to_string();
  EXPECT_THAT(failed.message(), HasSubstr(of().rank(1)));
  EXPECT_EQ(group.engine().step().status().code(), StatusCode::kDeviceLost);
  expect_end(group);
}

// A rank without work sleeps. If the failure did not wake it, it would stay in service although its group has ended.
TEST_P(FailureBetweenForwards, WakesAllEngines) {
  Group group(of());
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  {
    const auto nothing = [](std::span<EngineThread::Event>) {};
    std::promise<void> told;
    EngineThread idle(*group.engines()[0], nothing, [&] { told.set_value(); });
    EngineThread failing(*group.engines()[1], nothing);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // rank 0 has nothing left to do
    failing.post([](Engine&) { throw std::runtime_error("injected"); });
    ASSERT_EQ(told.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_EQ(idle.health().code(), StatusCode::kDeviceLost);
    EXPECT_THAT(idle.health().message(), HasSubstr("injected"));
  }
  expect_end(group);
}

}  // namespace
}  // namespace tessera::testing
