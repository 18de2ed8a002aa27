// Catches: events that are lost, doubled or reordered; events that are delivered after their request was freed; endless
// waits.
#include "tessera/capi/event_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace tessera::capi {
namespace {

using Item = EventQueue::Item;
using Take = EventQueue::Take;

int collect(void* user, const tessera_event* event) {
  auto& seen = *static_cast<std::vector<std::string>*>(user);
  seen.emplace_back(event->json);
  return seen.back() == "stop" ? 1 : 0;
}

TEST(EventQueue, KeepsOrderAndEndsOnce) {
  EventQueue queue(nullptr, nullptr);
  queue.push({.json = "a"});
  queue.push({.json = "b"});
  queue.push({.kind = TESSERA_EVENT_END, .json = "end"});
  queue.push({.kind = TESSERA_EVENT_ERROR, .json = "late"});
  std::string all;
  Item item;
  while (queue.take(0, item) == Take::kTaken) all += item.json + ' ';
  EXPECT_EQ(all, "a b end ");
  EXPECT_EQ(queue.take(-1, item), Take::kNoneLeft);
  EXPECT_TRUE(queue.wait(0));
}

TEST(EventQueue, TakeAndWaitTimeOut) {
  EventQueue queue(nullptr, nullptr);
  Item item;
  EXPECT_EQ(queue.take(0, item), Take::kTimeout);
  EXPECT_EQ(queue.take(5, item), Take::kTimeout);
  EXPECT_FALSE(queue.wait(5));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    queue.push({.kind = TESSERA_EVENT_END, .json = "end"});
  });
  EXPECT_EQ(queue.take(INT64_MAX, item), Take::kTaken) << "the longest time-out must not overflow";
  later.join();
}

TEST(EventQueue, CallsBackAndReportsARefusal) {
  std::vector<std::string> seen;
  EventQueue queue(collect, &seen);
  EXPECT_TRUE(queue.push({.json = "go"}));
  EXPECT_FALSE(queue.push({.json = "stop"}));
  queue.push({.kind = TESSERA_EVENT_ERROR, .json = "cancelled"});
  queue.push({.json = "late"});
  EXPECT_EQ(seen, (std::vector<std::string>{"go", "stop", "cancelled"}));
  EXPECT_TRUE(queue.wait(0));
}

TEST(EventQueue, DetachWaitsForTheRunningCallback) {
  struct Slow {
    std::atomic<bool> entered = false;
    std::atomic<bool> left = false;
  } slow;
  EventQueue queue(
      [](void* user, const tessera_event*) {
        auto& state = *static_cast<Slow*>(user);
        state.entered = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        state.left = true;
        return 0;
      },
      &slow);
  std::thread engine([&] { queue.push({.json = "a"}); });
  while (!slow.entered) std::this_thread::yield();
  queue.detach();
  EXPECT_TRUE(slow.left);
  engine.join();
  slow.left = false;
  queue.push({.json = "b"});
  EXPECT_FALSE(slow.left) << "nobody is called after detach()";
}

TEST(EventQueue, MayBeDetachedInsideItsCallback) {
  EventQueue* self = nullptr;
  EventQueue queue(
      [](void* user, const tessera_event*) {
        EXPECT_TRUE(in_callback());
        (*static_cast<EventQueue**>(user))->detach();
        return 0;
      },
      &self);
  self = &queue;
  EXPECT_TRUE(queue.push({.json = "a"}));
  EXPECT_FALSE(in_callback());
}

}  // namespace
}  // namespace tessera::capi
