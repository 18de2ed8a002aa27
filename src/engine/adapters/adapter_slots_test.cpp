// Catches: a slot that is taken from a running sequence; the eviction of the wrong adapter; and an adapter that is not
// written to its slot, or is written twice.
#include "tessera/engine/adapters/adapter_slots.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

std::shared_ptr<ServedAdapter> adapter(std::int64_t number, bool pinned = false) {
  return std::make_shared<ServedAdapter>(
      ServedAdapter{.name = std::to_string(number), .number = number, .content = nullptr, .pinned = pinned});
}

TEST(AdapterSlots, GivesEachAdapterOneSlot) {
  AdapterSlots slots(2);
  const auto a = adapter(1);
  const auto b = adapter(2);
  slots.acquire(a);
  slots.acquire(a);
  slots.acquire(b);
  EXPECT_NE(a->slot, b->slot);
  EXPECT_EQ(a->running, 2);
  ASSERT_EQ(slots.writes().size(), 2u);
  EXPECT_EQ(slots.writes()[0].slot, a->slot);
  slots.mark_written();
  slots.acquire(b);
  EXPECT_TRUE(slots.writes().empty());
}

TEST(AdapterSlots, EvictsTheIdleAdapterUsedLongestAgo) {
  AdapterSlots slots(2);
  const auto a = adapter(1);
  const auto b = adapter(2);
  const auto c = adapter(3);
  slots.acquire(a);
  slots.acquire(b);
  EXPECT_FALSE(slots.has_room(*c));
  slots.mark_written();
  slots.release(*b);
  slots.mark_written();
  slots.release(*a);
  slots.acquire(c);
  EXPECT_EQ(b->slot, -1);
  EXPECT_GE(a->slot, 0);
  EXPECT_TRUE(slots.has_room(*b));  // a's slot is idle
}

TEST(AdapterSlots, KeepsPinnedAdapters) {
  AdapterSlots slots(1);
  const auto pinned = adapter(1, true);
  slots.acquire(pinned);
  slots.mark_written();
  slots.release(*pinned);
  EXPECT_FALSE(slots.has_room(*adapter(2)));
  EXPECT_TRUE(slots.has_room(*pinned));
}

TEST(AdapterSlots, FreesAnUnloadedAdapterAfterItsLastSequence) {
  AdapterSlots slots(1);
  auto a = adapter(1);
  slots.acquire(a);
  slots.acquire(a);
  a->unloaded = true;
  slots.unload(*a);
  EXPECT_EQ(slots.num_held(), 1);
  slots.release(*a);
  slots.release(*a);
  EXPECT_EQ(slots.num_held(), 0);
  EXPECT_EQ(a.use_count(), 1);
}

TEST(AdapterSlots, AnAdapterThatCannotBeWrittenLosesItsSlot) {
  AdapterSlots slots(2);
  const auto a = adapter(1);
  const auto b = adapter(2);
  slots.acquire(a);
  slots.acquire(b);
  slots.mark_written(1);  // only a is written; the write of b fails
  slots.release(*a);
  slots.release(*b);
  EXPECT_EQ(a->slot, 0) << "written, and kept for the next request";
  EXPECT_EQ(b->slot, -1);
  EXPECT_TRUE(slots.writes().empty()) << "later forwards do not try again";
}

TEST(AdapterSlots, DropsWritesOfASlotThatIsTakenAway) {
  AdapterSlots slots(1);
  const auto a = adapter(1);
  const auto b = adapter(2);
  slots.acquire(a);
  slots.release(*a);
  slots.acquire(b);
  ASSERT_EQ(slots.writes().size(), 1u);
  EXPECT_EQ(slots.writes()[0].slot, b->slot);
}

}  // namespace
}  // namespace tessera
