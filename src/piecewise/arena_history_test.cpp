// Catches: a view of an overwritten output that counts as fresh, and a view that counts as stale although no forward
// wrote its memory.
#include "tessera/piecewise/arena_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/device/cpu/cpu_device.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

class ArenaHistoryTest : public ::testing::Test {
 protected:
  // Returns a view of f32[elements] at `offset` in the arena. The view counts as an output of the newest forward.
  OutputView view(std::int64_t offset, std::int64_t elements) const {
    OutputView made;
    made.data = arena_->base() + offset;
    made.rank = 1;
    made.dims[0] = elements;
    made.generation = history_.generation();
    return made;
  }

  std::unique_ptr<CpuDevice> device_ = CpuDevice::create({.threads = 1}).value();
  std::unique_ptr<Arena> arena_ = device_->create_arena({.reserve_bytes = 1 << 16, .name = "arena"}).value();
  ArenaHistory history_{*arena_};
};

TEST_F(ArenaHistoryTest, TheNextForwardThatReachesAViewEndsIt) {
  history_.begin_forward(0);
  const OutputView hidden = view(0, 64);  // the view covers bytes 0 … 255
  EXPECT_TRUE(history_.check_fresh(hidden).ok());
  history_.begin_forward(256);
  const OutputView logits = view(256, 64);
  EXPECT_TRUE(history_.check_fresh(hidden).ok());
  history_.begin_forward(512);
  EXPECT_TRUE(history_.check_fresh(hidden).ok());
  EXPECT_TRUE(history_.check_fresh(logits).ok());
  history_.begin_forward(256);
  EXPECT_TRUE(history_.check_fresh(hidden).ok());
  EXPECT_THAT(history_.check_fresh(logits).message(),
              HasSubstr("a view of forward 2 is used after forward 4 of its arena, which overwrote it from byte 256"));
  history_.begin_forward(0);
  EXPECT_FALSE(history_.check_fresh(hidden).ok());
}

TEST_F(ArenaHistoryTest, OneByteTooFewKeptEndsAView) {
  history_.begin_forward(0);
  const OutputView made = view(0, 64);
  history_.begin_forward(256);
  EXPECT_TRUE(history_.check_fresh(made).ok());
  history_.begin_forward(255);
  EXPECT_FALSE(history_.check_fresh(made).ok());
  // A later forward that keeps the view's bytes does not make the view fresh again.
  history_.begin_forward(1024);
  EXPECT_FALSE(history_.check_fresh(made).ok());
}

TEST_F(ArenaHistoryTest, MemoryOfItsOwnStaysFresh) {
  history_.begin_forward(0);
  const std::unique_ptr<Allocation> elsewhere = device_->allocate(256, "isolated").value();
  OutputView made = view(0, 64);
  made.data = elsewhere->data();
  history_.begin_forward(0);
  EXPECT_TRUE(history_.check_fresh(made).ok());
}

}  // namespace
}  // namespace tessera
