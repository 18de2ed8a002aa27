// Catches: a request that is never sent, or is sent before the request that it follows has ended; output ids that are
// missing in the next request's body; and more simultaneous requests than allowed.
#include "tessera/load/client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tessera/model/hub/test_http_server.h"

namespace tessera {
namespace {

constexpr const char* kAnswer = "data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[7]}]}\n\ndata: [DONE]\n\n";

// Answers after 20 ms, and counts the requests that it answers at the same time. If `fails` is true, the first request
// fails.
struct SlowServer {
  explicit SlowServer(bool fails)
      : http([this, fails](const test::ServedRequest&) {
          const int now = ++running;
          for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          --running;
          if (fails && answered++ == 0) return test::ServedReply{.status = 500, .body = "broken"};
          return test::ServedReply{.body = kAnswer};
        }) {}

  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  std::atomic<int> answered = 0;
  test::HttpServer http;
};

constexpr std::array<double, 4> kTimes = {0, 0.05, 0, 0};
constexpr std::array<std::ptrdiff_t, 4> kAfter = {-1, 0, 1, 0};

ClientRun run_on(SlowServer& server, std::int64_t max_concurrency, std::vector<std::vector<std::int64_t>>* seen) {
  const std::unique_ptr<LoadClient> client = *LoadClient::create(server.http.url(), "");
  const Result<ClientRun> run =
      client->run({.send_at_s = kTimes,
                   .after = kAfter,
                   .body = [&](std::size_t i, std::span<const RequestRecord> records) -> std::string {
                     if (seen != nullptr && kAfter[i] >= 0)
                       seen->push_back(records[static_cast<std::size_t>(kAfter[i])].output_ids);
                     return "{}";
                   },
                   .keep_ids = true,
                   .max_concurrency = max_concurrency});
  EXPECT_TRUE(run.ok()) << run.status().message();
  return run.ok() ? *run : ClientRun{.records = std::vector<RequestRecord>(4)};
}

TEST(LoadClient, FollowersWaitAndSeeTheOutput) {
  SlowServer server(/*fails=*/false);
  std::vector<std::vector<std::int64_t>> seen;
  const ClientRun run = run_on(server, 0, &seen);
  for (std::size_t i = 0; i < kTimes.size(); ++i) {
    EXPECT_EQ(run.records[i].failure, "");
    if (kAfter[i] < 0) continue;
    EXPECT_GE(run.records[i].sent_s, run.records[static_cast<std::size_t>(kAfter[i])].end_s + kTimes[i]) << i;
  }
  EXPECT_EQ(seen, (std::vector<std::vector<std::int64_t>>(3, {7})));
}

TEST(LoadClient, SendsNoMoreRequestsThanAllowed) {
  SlowServer server(/*fails=*/false);
  EXPECT_EQ(run_on(server, 1, nullptr).records[2].failure, "");
  EXPECT_EQ(server.most, 1);
}

TEST(LoadClient, AFailureLetsItsFollowersGo) {
  SlowServer server(/*fails=*/true);
  const ClientRun run = run_on(server, 0, nullptr);
  EXPECT_EQ(run.records[0].failure, "500: broken");
  for (std::size_t i = 1; i < kTimes.size(); ++i) EXPECT_EQ(run.records[i].failure, "") << i;
}

}  // namespace
}  // namespace tessera
