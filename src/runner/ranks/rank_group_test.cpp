// Catches: a load that waits forever for a rank that still loads; a rank without a host that does not answer; a thread
// that is left running. The sources in tests/faults/ test faults of whole engines.
#include "tessera/runner/ranks/rank_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "tessera/base/testing/leaves_no_thread.h"
#include "tessera/runner/followers/rank_host.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using RankGroups = test::LeavesNoThread;

// A RankHost whose weights load slowly.
class SlowHost final : public RankHost {
 public:
  explicit SlowHost(const std::atomic<bool>& loads) : loads_(loads) {}
  Result<RankLimits> plan(std::int64_t /*max_running*/) override { return RankLimits{}; }
  Result<ModelRunner*> load(const RankLimits& /*agreed*/, Communicator& /*communicator*/) override {
    while (loads_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return internal_error("it was let go");
  }

 private:
  const std::atomic<bool>& loads_;
};

TEST_F(RankGroups, AFailedLoadOnRankZeroWaitsForNone) {
  std::atomic<bool> loads = true;
  const std::unique_ptr<RankGroup> group =
      RankGroup::start({.ranks = 2, .limit = std::chrono::seconds(60), .body = following([&](int) {
                                                                         return std::make_unique<SlowHost>(loads);
                                                                       })});
  const RankLimits agreed = group->agree({}).value();
  const Status failed = group->load(agreed, [] { return not_found("no weights"); });
  loads = false;
  EXPECT_EQ(failed.code(), StatusCode::kNotFound) << failed.to_string();
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("rank 0 of 2"), HasSubstr("no weights")));
  EXPECT_EQ(group->agree({}).status().code(), StatusCode::kDeviceLost) << "what the others do is unknown";
}

TEST_F(RankGroups, ARankThatCannotBeMadeSaysSo) {
  const std::unique_ptr<RankGroup> group = RankGroup::start(
      {.ranks = 2, .limit = std::chrono::seconds(60), .body = following([](int) -> std::unique_ptr<RankHost> {
                                                        throw std::runtime_error("no memory for a host");
                                                      })});
  for (int n = 0; n < 2; ++n) {
    const Status failed = group->agree({}).status();
    EXPECT_EQ(failed.code(), StatusCode::kDeviceLost) << failed.to_string();
    EXPECT_THAT(failed.message(), AllOf(HasSubstr("rank 1 of 2"), HasSubstr("no memory for a host")));
  }
}

}  // namespace
}  // namespace tessera
