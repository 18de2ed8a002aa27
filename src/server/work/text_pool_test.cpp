// Catches: jobs that a pool loses, runs twice or runs after they were cancelled; a client whose jobs keep other clients
// from a thread; and heavy work on threads with normal priority.
#include "tessera/server/work/text_pool.h"

#include <gtest/gtest.h>
#include <prometheus/histogram.h>
#include <sys/resource.h>

#include <atomic>
#include <future>
#include <vector>

#include "tessera/server/http/http_test_util.h"

namespace tessera {
namespace {

using testing::eventually;

// A pool, jobs that run until they are released, and the outcome of each.
class TextPoolTest : public ::testing::Test {
 protected:
  enum class End { kNone, kRan, kFull, kCancelled };

  void make(FairQueue::Limits limits, int nice = 0) {
    pool_.emplace(TextPoolOptions{.name = "test", .limits = limits, .nice = nice});
  }
  // Posts a job that runs until release(). Returns its number.
  std::size_t post(const std::string& client) {
    const std::size_t job = posted_++;
    ids_.push_back(pool_->post({.client = client,
                                .run =
                                    [this, job] {
                                      ++running_;
                                      released_.wait();
                                      ends_[job] = End::kRan;
                                    },
                                .not_run =
                                    [this, job](TextPool::NotRun why) {
                                      ends_[job] = why == TextPool::NotRun::kFull ? End::kFull : End::kCancelled;
                                    }}));
    return job;
  }
  bool runs(int count) {
    return eventually([&] { return running_ == count; });
  }
  void release() { let_go_.set_value(); }
  End end(std::size_t job) const { return ends_[job]; }

  std::vector<TextPool::Id> ids_;
  std::atomic<int> running_ = 0;

 private:
  std::promise<void> let_go_;
  std::shared_future<void> released_ = let_go_.get_future().share();
  std::size_t posted_ = 0;
  std::vector<std::atomic<End>> ends_ = std::vector<std::atomic<End>>(16);

 protected:
  std::optional<TextPool> pool_;  // last member: its threads must end first
};

TEST_F(TextPoolTest, AllJobsRunOnce) {
  make({.threads = 3, .most_waiting = 10});
  for (int i = 0; i < 8; ++i) post(std::to_string(i % 3));
  EXPECT_TRUE(runs(3));
  release();
  EXPECT_TRUE(runs(8));
  EXPECT_TRUE(eventually([&] { return pool_->stats().running == 0; }));
  for (std::size_t job = 0; job < 8; ++job) EXPECT_EQ(end(job), End::kRan) << job;
  EXPECT_EQ(pool_->waits().Collect().histogram.sample_count, 8u);
}

TEST_F(TextPoolTest, AnotherClientsJobBeginsBesideAFlood) {
  make({.threads = 2, .most_waiting = 10});
  for (int i = 0; i < 5; ++i) post("a");
  EXPECT_TRUE(runs(1));
  post("b");
  EXPECT_TRUE(runs(2));
  EXPECT_EQ(pool_->stats().waiting, 4u);
  release();
}

TEST_F(TextPoolTest, AFullPoolRefusesTheFlood) {
  make({.threads = 1, .most_waiting = 2});
  post("a");
  EXPECT_TRUE(runs(1));
  post("a");
  post("a");
  EXPECT_EQ(end(post("a")), End::kFull);
  const std::size_t others = post("b");
  EXPECT_EQ(end(others), End::kNone);
  EXPECT_EQ(end(2), End::kFull) << "the newest of a in its place";
  EXPECT_EQ(pool_->stats().refused, 2u);
  release();
  EXPECT_TRUE(eventually([&] { return end(others) == End::kRan && end(1) == End::kRan; }));
}

TEST_F(TextPoolTest, CancelledJobsDoNotRun) {
  make({.threads = 1, .most_waiting = 10});
  post("a");
  EXPECT_TRUE(runs(1));
  post("a");
  post("a");
  pool_->cancel(ids_[1]);
  pool_->cancel(ids_[0]);  // this job already runs, and continues
  EXPECT_EQ(end(1), End::kCancelled);
  release();
  EXPECT_TRUE(eventually([&] { return end(2) == End::kRan; }));
  EXPECT_EQ(end(0), End::kRan);
  EXPECT_EQ(running_, 2);
}

TEST_F(TextPoolTest, ThreadsTakeTheGivenNiceValue) {
  const auto nice_here = [] { return ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid())); };
  const int before = nice_here();
  make({.threads = 1, .most_waiting = 1}, /*nice=*/7);
  std::promise<int> told;
  pool_->post({.client = "a", .run = [&] { told.set_value(nice_here()); }, .not_run = {}});
  EXPECT_EQ(told.get_future().get(), 7);
  EXPECT_EQ(nice_here(), before) << "of this thread";
}

TEST_F(TextPoolTest, ItsEndDropsWaitingJobs) {
  make({.threads = 1, .most_waiting = 10});
  post("a");
  EXPECT_TRUE(runs(1));
  const std::size_t waiting = post("a");
  std::thread letting_go([&] { release(); });
  pool_.reset();
  letting_go.join();
  EXPECT_EQ(end(0), End::kRan);
  EXPECT_TRUE(end(waiting) == End::kNone || end(waiting) == End::kRan);
}

}  // namespace
}  // namespace tessera
