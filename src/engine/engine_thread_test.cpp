// Catches: events that are lost or given to another request's ticket (the number by which its caller identifies it); a
// thread that hangs when it must end or while it has work; and requests that wait forever for a failed engine.
#include "tessera/engine/engine_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "tessera/engine/engine_test_util.h"
#include "tessera/engine/engine_thread_test_util.h"

namespace tessera {
namespace {

using test::Gatherer;
using test::make_engine;
using test::request;
using test::run_one;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(EngineThread, EveryTicketGetsItsOwnTokens) {
  const std::unique_ptr<Engine> engine = make_engine();
  std::map<Ticket, std::vector<TokenId>> want;
  for (Ticket t = 0; t < 10; ++t)
    want[100 + t] = run_one(*engine, request(5 + static_cast<int>(t), 8, static_cast<int>(t))).output_ids;
  Gatherer gatherer;
  EngineThread thread(*engine, gatherer.sink());
  for (Ticket t = 0; t < 10; ++t) thread.submit(100 + t, request(5 + static_cast<int>(t), 8, static_cast<int>(t)));
  gatherer.wait_for(10);
  EXPECT_EQ(gatherer.tokens_, want);
  for (const auto& [ticket, end] : gatherer.ends_) EXPECT_EQ(end.output_ids, want[ticket]);
  EXPECT_THAT(gatherer.ends_, SizeIs(10));
  EXPECT_EQ(thread.stats().running, 0);
  EXPECT_GE(thread.stats().output_tokens, 80);
  EXPECT_TRUE(thread.health().ok());
}

TEST(EngineThread, ARefusedRequestHasAnErrorAndNoEnd) {
  const std::unique_ptr<Engine> engine = make_engine();
  Gatherer gatherer;
  EngineThread thread(*engine, gatherer.sink());
  thread.submit(1, request(0, 4));
  thread.submit(2, request(3, 4));
  gatherer.wait_for(2);
  EXPECT_THAT(gatherer.errors_[1].message(), HasSubstr("the prompt is empty"));
  EXPECT_THAT(gatherer.ends_, SizeIs(1));
  EXPECT_THAT(gatherer.tokens_[2], SizeIs(4));
}

TEST(EngineThread, CancellingEndsQuietlyAndFreesThePages) {
  const std::unique_ptr<Engine> engine = make_engine();
  Gatherer gatherer;
  EngineThread thread(*engine, gatherer.sink());
  for (int i = 0; i < 20; ++i) {
    thread.submit(1, request(30, 34));
    thread.cancel(1);
    thread.cancel(77);
  }
  thread.submit(2, request(3, 4));
  gatherer.wait_for(1);
  EXPECT_FALSE(gatherer.ends_.contains(1));
  EXPECT_EQ(thread.stats().fullest_group().used_pages, 0);
}

TEST(EngineThread, AnExceptionEndsTheRequestsBehindItToo) {
  const std::unique_ptr<Engine> engine = make_engine();
  Gatherer gatherer;
  std::promise<void> all_sent;
  EngineThread thread(*engine, gatherer.sink());
  thread.post([sent = all_sent.get_future().share()](Engine&) { sent.wait(); });
  thread.submit(1, request(20, 4));
  thread.post([](Engine&) { throw std::runtime_error("no memory"); });
  thread.submit(2, request(20, 4));
  all_sent.set_value();
  gatherer.wait_for(2);
  EXPECT_THAT(gatherer.errors_[1].message(), HasSubstr("no memory"));
  EXPECT_THAT(gatherer.errors_[2].message(), HasSubstr("no memory"));
}

TEST(EngineThread, TasksRunBetweenSteps) {
  const std::unique_ptr<Engine> engine = make_engine();
  Gatherer gatherer;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  EngineThread thread(*engine, gatherer.sink());
  thread.submit(1, request(20, 4));
  gatherer.wait_for(1);
  thread.post([&](Engine& e) {
    e.flush_prefix_cache();
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return done; }));
}

TEST(EngineThread, IdleWorkIsDoneWhileThereAreNoRequests) {
  EngineOptions options = test::small_options();
  options.graphs.piecewise_tokens = {4, 9, 10, 11, 32};
  options.graphs.capture = CaptureMode::kCore;
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_THAT(engine->runner().prefill().report().captured, SizeIs(3)) << "4, 9 and 32";
  const std::vector<TokenId> want = run_one(*engine, request(11, 4)).output_ids;
  Gatherer gatherer;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t captured = 0;
  std::size_t measured = 0;
  EngineThread thread(*engine, gatherer.sink());
  const auto done = [&] {
    thread.post([&](Engine& e) {
      const std::lock_guard lock(mutex);
      captured = e.runner().prefill().report().captured.size();
      measured = e.runner().costs().size();
      changed.notify_all();
    });
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::milliseconds(50));
    return captured == 5 && measured > 5;
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  {
    const std::lock_guard lock(mutex);  // a posted task may still run
    EXPECT_EQ(captured, 5U);
    EXPECT_GT(measured, 5U);
  }
  thread.submit(1, request(11, 4));
  gatherer.wait_for(1);
  EXPECT_EQ(gatherer.tokens_[1], want);
}

TEST(EngineThread, CanBeDestroyedWithWorkLeft) {
  const std::unique_ptr<Engine> engine = make_engine();
  {
    Gatherer gatherer;
    EngineThread thread(*engine, gatherer.sink());
    for (Ticket t = 0; t < 10; ++t) thread.submit(t, request(30, 34));
  }
  EXPECT_TRUE(engine->idle());
  EXPECT_EQ(engine->stats().fullest_group().used_pages, 0);
  EXPECT_THAT(run_one(*engine, request(5, 4)).output_ids, SizeIs(4)) << "and the engine can go on";
}

}  // namespace
}  // namespace tessera
