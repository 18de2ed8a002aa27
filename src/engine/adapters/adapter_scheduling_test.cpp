// Catches: a batch with more adapters than slots; a sequence that waits for a slot forever; a sequence that delays
// others although they need no slot; and rows that name another sequence's slot.
#include <gmock/gmock.h>

#include <set>

#include "tessera/engine/cache/cache_pool.h"
#include "tessera/engine/schedule/scheduler.h"
#include "tessera/engine/schedule/scheduler_test_util.h"

namespace tessera::test {
namespace {

std::shared_ptr<ServedAdapter> adapter(std::int64_t number) {
  return std::make_shared<ServedAdapter>(
      ServedAdapter{.name = std::to_string(number), .number = number, .content = nullptr});
}

std::unique_ptr<Sequence> with(std::shared_ptr<ServedAdapter> used, std::int64_t id, std::int64_t new_tokens = 3) {
  std::unique_ptr<Sequence> made = sequence(id, /*prompt=*/3, new_tokens);
  made->adapter = std::move(used);
  return made;
}

SchedulerOptions options(std::int64_t slots) {
  return {.limits = {.max_tokens = 64}, .max_running = 16, .adapter_slots = slots};
}

TEST(AdapterScheduling, RowsNameTheSlotsOfTheirSequences) {
  Scheduler scheduler(options(2), paged_cache(100, kPageSize));
  const auto a = adapter(1);
  const auto b = adapter(2);
  scheduler.add(with(a, 1));
  scheduler.add(sequence(2, 2, 3));
  scheduler.add(with(b, 3));
  const ScheduledBatch step = next_step(scheduler);
  ASSERT_EQ(shown(step), "1:3* 2:2* 3:3*");
  const auto s = static_cast<std::int32_t>(a->slot);
  const auto t = static_cast<std::int32_t>(b->slot);
  EXPECT_EQ(step.batch.adapter_slots, (std::vector<std::int32_t>{s, s, s, -1, -1, t, t, t}));
  EXPECT_TRUE(step.batch.has_adapters());
}

TEST(AdapterScheduling, ABatchNeverHasMoreAdaptersThanSlots) {
  Scheduler scheduler(options(2), paged_cache(100, kPageSize));
  for (std::int64_t id = 1; id <= 6; ++id) scheduler.add(with(adapter(id), id));
  std::set<std::int64_t> finished;
  while (!scheduler.idle()) {
    const ScheduledBatch step = next_step(scheduler);
    ASSERT_FALSE(step.entries.empty());
    std::set<std::int64_t> used;
    for (const auto& entry : step.entries) used.insert(entry.sequence->adapter->number);
    EXPECT_LE(used.size(), 2u);
    for (const std::int64_t id : finish_step(scheduler, step)) finished.insert(id);
  }
  EXPECT_EQ(finished.size(), 6u);
}

TEST(AdapterScheduling, OthersPassASequenceWithoutASlot) {
  Scheduler scheduler(options(1), paged_cache(100, kPageSize));
  const auto a = adapter(1);
  scheduler.add(with(a, 1));
  scheduler.add(with(adapter(2), 2));
  scheduler.add(with(a, 3));
  scheduler.add(sequence(4, 3, 3));
  EXPECT_EQ(shown(next_step(scheduler)), "1:3* 3:3* 4:3*");
}

TEST(AdapterScheduling, ASequenceIsNotPassedForever) {
  Scheduler scheduler(options(1), paged_cache(1000, kPageSize));
  const auto a = adapter(1);
  scheduler.add(with(a, 1));
  scheduler.add(with(adapter(2), 2, /*new_tokens=*/1));
  // Adapter a has the only slot. Every step adds another sequence with adapter a. Sequence 2 needs the slot for another
  // adapter, and must get it after a limited number of steps.
  bool finished = false;
  for (std::int64_t id = 3; id < 200 && !finished; ++id) {
    scheduler.add(with(a, id));
    for (const std::int64_t done : finish_step(scheduler, next_step(scheduler))) finished |= done == 2;
  }
  EXPECT_TRUE(finished);
}

TEST(AdapterScheduling, RemovedSequencesGiveTheirSlotsBack) {
  Scheduler scheduler(options(1), paged_cache(100, kPageSize));
  const auto a = adapter(1);
  scheduler.add(with(a, 1));
  finish_step(scheduler, next_step(scheduler));
  EXPECT_EQ(a->running, 1);
  scheduler.add(with(adapter(2), 2));
  EXPECT_NE(scheduler.remove(RequestId(2), false), nullptr);  // sequence 2 was waiting without a slot
  EXPECT_NE(scheduler.remove(RequestId(1), false), nullptr);
  EXPECT_EQ(a->running, 0);
}

TEST(AdapterScheduling, PrefixesOfOtherAdaptersAreNotReused) {
  Scheduler scheduler(options(2), paged_cache(100, kPageSize));
  const auto prompt_of = [](std::shared_ptr<ServedAdapter> used, std::int64_t id) {
    std::unique_ptr<Sequence> made = sequence(7, /*prompt=*/9, 1);
    made->id = RequestId(id);
    made->order = id;
    made->adapter = std::move(used);
    return made;
  };
  const auto a = adapter(1);
  const auto b = adapter(2);
  std::vector<std::string> steps;
  for (const auto& used : {a, b, std::shared_ptr<ServedAdapter>(), a}) {
    scheduler.add(prompt_of(used, std::ssize(steps) + 1));
    const ScheduledBatch step = next_step(scheduler);
    steps.push_back(shown(step));
    finish_step(scheduler, step);
  }
  EXPECT_THAT(steps, ::testing::ElementsAre("1:9*", "2:9*", "3:9*", "4:1*"));
}

}  // namespace
}  // namespace tessera::test
