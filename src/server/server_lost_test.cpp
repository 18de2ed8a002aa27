// Catches: a server that continues although its engine has failed for good, so that no supervisor restarts it; and a
// server that ends without answering waiting clients, or although another engine still serves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "tessera/device/testing/fake_device.h"
#include "tessera/server/server_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;

// An engine whose device can be lost on demand.
class Losing {
 public:
  Losing() {
    std::unique_ptr<FakeDevice> device = FakeDevice::create({}, {.threads = 1}).value();
    device_ = device.get();
    EngineOptions options;
    options.model_path = source_path("models/demo");
    options.dtype = "float32";
    options.context_length = 512;
    options.max_running_requests = 8;
    options.graphs.piecewise_tokens = {16, 64};
    options.graphs.decode_batches = {1, 4};
    // If the engine measured costs while it is idle, it would find the lost device before a request does.
    options.graphs.measure_costs = false;
    engine_ = Engine::create(options, std::move(device)).value();
  }
  Engine& engine() { return *engine_; }
  void lose() { device_->set_plan({.lost_from = 1}); }

 private:
  FakeDevice* device_ = nullptr;
  std::unique_ptr<Engine> engine_;
};

TEST(LostServer, AnswersWithTheReasonUntilItEnds) {
  Losing losing;
  Running running(losing.engine(), {.last_answers_s = 30});  // long enough for the test's requests on a slow machine
  Client stream(running.port);
  Client kept(running.port);
  EXPECT_EQ(kept.ask(get("/health")).status, 200);
  stream.send(completion(R"("prompt": "Once", "max_tokens": 480, "ignore_eos": true, "stream": true)"));
  EXPECT_THAT(stream.read_through("data: "), HasSubstr("200"));
  losing.lose();
  // Reads up to the empty chunk ("0"), which shows that the chunked body is complete.
  const std::string rest = stream.read_through("data: [DONE]\n\n\r\n0\r\n\r\n");
  EXPECT_THAT(rest, HasSubstr(R"({"error": {"message": )"));
  const Reply health = kept.ask(get("/health"));
  EXPECT_EQ(health.status, 503);
  EXPECT_THAT(health.body, HasSubstr("the engine has failed: "));
  const Reply refused = running.ask(completion(R"("prompt": "a")"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("the engine has failed: "));
  running.server->stop(0);
  running.join();
  EXPECT_EQ(running.result.code(), StatusCode::kDeviceLost) << running.result.to_string();
}

TEST(LostServer, EndsWithTheLastEngine) {
  Losing first;
  Losing second;
  Running running({&first.engine(), &second.engine()});
  const auto ask = [&] { return running.ask(completion(R"("prompt": "Once", "max_tokens": 4)")).status; };
  first.lose();
  EXPECT_EQ(ask(), 503) << "of equal engines the first is asked";
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // longer than a server waits before it ends
  for (int n = 0; n < 4; ++n) EXPECT_EQ(ask(), 200) << n;
  EXPECT_EQ(running.ask(get("/health")).status, 200);
  second.lose();
  EXPECT_EQ(ask(), 503);
  running.join();
  EXPECT_EQ(running.result.code(), StatusCode::kDeviceLost) << running.result.to_string();
}

}  // namespace
}  // namespace tessera::testing
