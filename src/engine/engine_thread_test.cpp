// Catches: events lost or given to another ticket, a thread that hangs at its end or with work left, and requests that
// wait for ever on an engine that has failed.
#include "tessera/engine/engine_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "tessera/engine/engine_test_util.h"

namespace tessera {
namespace {

using test::make_engine;
using test::request;
using test::run_one;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Gathers events until as many requests have ended as are waited for.
class Gatherer {
 public:
  EngineThread::Sink sink() {
    return [this](std::vector<EngineThread::Event> events) {
      const std::lock_guard lock(mutex_);
      for (EngineThread::Event& event : events) {
        if (event.event.token) tokens_[event.ticket].push_back(*event.event.token);
        if (event.event.finish == FinishReason::kNone) continue;
        errors_[event.ticket] = event.event.error;
        if (event.end != nullptr) ends_[event.ticket] = std::move(*event.end);
        ++ended_;
      }
      changed_.notify_all();
    };
  }
  void wait_for(std::size_t ended) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return ended_ >= ended; }));
  }

  std::map<Ticket, std::vector<TokenId>> tokens_;
  std::map<Ticket, Status> errors_;
  std::map<Ticket, Completion> ends_;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t ended_ = 0;
};

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
  EXPECT_EQ(thread.stats().used_pages, 0);
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

TEST(EngineThread, EndsWithWorkLeft) {
  const std::unique_ptr<Engine> engine = make_engine();
  {
    Gatherer gatherer;
    EngineThread thread(*engine, gatherer.sink());
    for (Ticket t = 0; t < 10; ++t) thread.submit(t, request(30, 34));
  }
  EXPECT_TRUE(engine->idle());
  EXPECT_EQ(engine->stats().used_pages, 0);
  EXPECT_THAT(run_one(*engine, request(5, 4)).output_ids, SizeIs(4)) << "and the engine can go on";
}

}  // namespace
}  // namespace tessera
