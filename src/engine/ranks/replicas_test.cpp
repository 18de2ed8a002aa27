// Catches: outputs that depend on the replica, or that go to another request's ticket (the number by which its caller
// identifies it); events lost between engines' threads; requests that wait forever for a failed engine; and statistics
// that leave out an engine.
#include "tessera/engine/ranks/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tessera/device/testing/fake_device.h"
#include "tessera/engine/engine_test_util.h"
#include "tessera/engine/engine_thread_test_util.h"

namespace tessera {
namespace {

using test::Gatherer;
using test::make_engine;
using test::request;
using test::run_one;
using test::small_options;

TEST(Replicas, ShareRequestsAndGiveTheSameTokens) {
  EngineOptions options = small_options();
  options.deterministic = true;
  const std::unique_ptr<Engine> first = make_engine(options);
  const std::unique_ptr<Engine> second = make_engine(options);
  std::map<Ticket, std::vector<TokenId>> want;
  for (Ticket t = 0; t < 16; ++t)
    want[t] = run_one(*first, request(5 + static_cast<int>(t), 8, static_cast<int>(t))).output_ids;
  const std::int64_t before = first->stats().prompt_tokens;
  Gatherer results;
  {
    Replicas replicas(std::vector<Engine*>{first.get(), second.get()}, results.sink());
    for (Ticket t = 0; t < 16; ++t) replicas.submit(t, request(5 + static_cast<int>(t), 8, static_cast<int>(t)));
    results.wait_for(16);
    EXPECT_TRUE(replicas.health().ok());
    EXPECT_GT(replicas.stats(0).prompt_tokens, before);
    EXPECT_GT(replicas.stats(1).prompt_tokens, 0);
    EXPECT_EQ(replicas.stats().prompt_tokens, replicas.stats(0).prompt_tokens + replicas.stats(1).prompt_tokens);
    EXPECT_EQ(replicas.stats().forwards.tokens, replicas.stats(0).forwards.tokens + replicas.stats(1).forwards.tokens);
    EXPECT_EQ(replicas.stats().fullest_group().usable_pages, 2 * replicas.stats(0).fullest_group().usable_pages);
  }
  EXPECT_EQ(results.tokens_, want);
}

TEST(Replicas, CancelledRequestsEndQuietlyWhereverTheyAre) {
  const std::unique_ptr<Engine> first = make_engine();
  const std::unique_ptr<Engine> second = make_engine();
  Gatherer results;
  Replicas replicas(std::vector<Engine*>{first.get(), second.get()}, results.sink());
  for (Ticket t = 0; t < 6; ++t) replicas.submit(t, request(5, 200, static_cast<int>(t)));
  for (Ticket t = 0; t < 6; ++t) replicas.cancel(t);
  replicas.cancel(99);
  replicas.submit(7, request(5, 4));
  results.wait_for_ticket(7);
  EXPECT_EQ(results.tokens_[7].size(), 4u);
}

TEST(Replicas, AFailedEngineEndsItsRequestsAndOthersServe) {
  EngineOptions options = small_options();
  // An idle engine would otherwise measure costs, and would meet the fault before a request does.
  options.graphs.measure_costs = false;
  std::unique_ptr<FakeDevice> device = FakeDevice::create({}, {.threads = 1}).value();
  FakeDevice& faulty = *device;
  const std::unique_ptr<Engine> first = Engine::create(options, std::move(device)).value();
  const std::unique_ptr<Engine> second = make_engine(options);
  Gatherer results;
  Replicas replicas(std::vector<Engine*>{first.get(), second.get()}, results.sink());
  faulty.set_plan({.lost_from = 1});
  for (Ticket t = 0; t < 4; ++t) replicas.submit(t, request(40, 4, static_cast<int>(t)));
  results.wait_for(4);
  EXPECT_EQ(replicas.health(0).code(), StatusCode::kDeviceLost);
  EXPECT_TRUE(replicas.health().ok());
  // Two requests fail, unless the engine's failure was noticed before the third request arrived. In that case only one
  // request fails.
  std::size_t failed = 0;
  for (const auto& [ticket, error] : results.errors_) {
    if (error.ok()) continue;
    ++failed;
    EXPECT_EQ(error.code(), StatusCode::kDeviceLost) << error.to_string();
  }
  EXPECT_GE(failed, 1u);
  EXPECT_LE(failed, 2u);
  for (Ticket t = 10; t < 14; ++t) replicas.submit(t, request(40, 4, static_cast<int>(t)));
  results.wait_for(8);
  for (Ticket t = 10; t < 14; ++t) EXPECT_EQ(results.tokens_[t].size(), 4u) << results.errors_[t].to_string();
}

}  // namespace
}  // namespace tessera
