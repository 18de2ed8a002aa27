// Catches: a client that must wait for all jobs of another client; a client that is refused because another client
// fills the queue; a client that occupies every thread; and jobs that are lost or run twice.
#include "tessera/server/work/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using Job = FairQueue::Job;

// Returns the jobs in the order in which one thread runs them.
std::vector<Job> order_of(FairQueue& queue) {
  std::vector<Job> order;
  while (const std::optional<Job> job = queue.next()) {
    order.push_back(*job);
    queue.done(*job);
  }
  return order;
}

// Returns the jobs that begin now.
std::vector<Job> begun(FairQueue& queue) {
  std::vector<Job> jobs;
  while (const std::optional<Job> job = queue.next()) jobs.push_back(*job);
  return jobs;
}

TEST(FairQueue, ClientsTakeTurns) {
  FairQueue queue({.threads = 1, .most_waiting = 10});
  for (const Job job : {1, 2, 3}) queue.add(job, "a");
  for (const Job job : {4, 5}) queue.add(job, "b");
  queue.add(6, "c");
  EXPECT_THAT(order_of(queue), ElementsAre(1, 4, 6, 2, 5, 3));
}

TEST(FairQueue, JobsOfOneClientKeepTheirOrder) {
  FairQueue queue({.threads = 1, .most_waiting = 10});
  for (const Job job : {3, 1, 2}) queue.add(job, "a");
  EXPECT_THAT(order_of(queue), ElementsAre(3, 1, 2));
}

TEST(FairQueue, AClientLeavesTheLastThreadToOthers) {
  FairQueue queue({.threads = 3, .most_waiting = 10});
  for (const Job job : {1, 2, 3, 4}) queue.add(job, "a");
  EXPECT_THAT(begun(queue), ElementsAre(1, 2));
  queue.add(5, "b");
  EXPECT_THAT(begun(queue), ElementsAre(5));
  EXPECT_EQ(queue.running(), 3u);
  queue.done(5);
  EXPECT_THAT(begun(queue), ElementsAre()) << "the last one is free again, for others";
  queue.done(1);
  EXPECT_THAT(begun(queue), ElementsAre(3));
}

TEST(FairQueue, ASingleThreadServesAnyClient) {
  FairQueue queue({.threads = 1, .most_waiting = 10});
  queue.add(1, "a");
  EXPECT_THAT(begun(queue), ElementsAre(1));
}

TEST(FairQueue, TheClientWithFewestRunningJobsComesFirst) {
  FairQueue queue({.threads = 4, .most_waiting = 10});
  for (const Job job : {1, 2, 3}) queue.add(job, "a");
  queue.add(4, "b");
  EXPECT_THAT(begun(queue), ElementsAre(1, 4, 2));
  queue.add(5, "b");
  queue.add(6, "c");
  EXPECT_THAT(begun(queue), ElementsAre(6)) << "a and b run some already";
}

TEST(FairQueue, AFullQueueDropsTheGreediestClientsNewestJob) {
  FairQueue queue({.threads = 1, .most_waiting = 3});
  EXPECT_EQ(queue.add(1, "a"), std::nullopt);
  EXPECT_EQ(queue.add(2, "a"), std::nullopt);
  EXPECT_EQ(queue.add(3, "a"), std::nullopt);
  EXPECT_EQ(queue.add(4, "a"), 4u) << "the client's own newest";
  EXPECT_EQ(queue.add(5, "b"), 3u) << "not the other client's only one";
  EXPECT_EQ(queue.waiting(), 3u);
  EXPECT_THAT(order_of(queue), ElementsAre(1, 5, 2));
}

TEST(FairQueue, RemovedJobsNeverRun) {
  FairQueue queue({.threads = 1, .most_waiting = 10});
  for (const Job job : {1, 2, 3}) queue.add(job, "a");
  EXPECT_TRUE(queue.remove(2));
  EXPECT_FALSE(queue.remove(2)) << "it is gone already";
  EXPECT_EQ(queue.next(), 1u);
  EXPECT_FALSE(queue.remove(1)) << "it runs";
  queue.done(1);
  EXPECT_THAT(order_of(queue), ElementsAre(3));
  EXPECT_EQ(queue.waiting() + queue.running(), 0u);
}

// Checks random traffic: every job ends once, the limits hold, and a client without a running job always finds a thread
// that it may take.
TEST(FairQueue, RandomTrafficKeepsTheGuarantees) {
  std::mt19937 random(1);
  const FairQueue::Limits limits{.threads = 3, .most_waiting = 8};
  FairQueue queue(limits);
  std::map<Job, char> clients;  // clients of the jobs that wait or run
  std::set<Job> running;
  Job next_job = 0;
  const auto runs = [&](char client) {
    return std::ranges::count_if(running, [&](Job job) { return clients.at(job) == client; });
  };
  for (int step = 0; step < 20'000; ++step) {
    const Job chosen = next_job == 0 ? 0 : random() % next_job;
    switch (random() % 4) {
      case 0: {
        const char client = static_cast<char>('a' + random() % 5);
        clients[next_job] = client;
        if (const auto refused = queue.add(next_job++, std::string(1, client))) {
          ASSERT_EQ(clients.erase(*refused), 1u);
          ASSERT_FALSE(running.contains(*refused));
        }
        break;
      }
      case 1:
        if (queue.remove(chosen)) {
          ASSERT_EQ(clients.erase(chosen), 1u);
          ASSERT_FALSE(running.contains(chosen));
        }
        break;
      case 2:
        if (running.erase(chosen) == 1) {
          queue.done(chosen);
          clients.erase(chosen);
        }
        break;
      default:
        if (const auto job = queue.next()) {
          ASSERT_TRUE(clients.contains(*job));
          ASSERT_TRUE(running.insert(*job).second);
          ASSERT_TRUE(running.size() < limits.threads || runs(clients.at(*job)) == 1) << "the last thread";
        } else {
          const bool left_out =
              std::ranges::any_of(clients, [&](const auto& entry) { return runs(entry.second) == 0; });
          ASSERT_TRUE(running.size() == limits.threads || !left_out);
        }
    }
    ASSERT_EQ(queue.running(), running.size());
    ASSERT_EQ(queue.waiting(), clients.size() - running.size());
    ASSERT_LE(queue.waiting(), limits.most_waiting);
    ASSERT_LE(running.size(), limits.threads);
  }
}

}  // namespace
}  // namespace tessera
