// Captured sizes form a ladder. In the mode CaptureMode::kCore, only the ladder's core is captured at the start.
// Catches: a core that lacks the ladder's smallest or largest size, or that lacks, for a power of two between them, the
// smallest size that is at least this power; and sizes for eager measurements that lack one end of the ladder.
#include "tessera/runner/capture/capture_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/piecewise/ladder.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CapturePlan, CoreHasBothEndsAndPowersOfTwo) {
  EXPECT_THAT(core_sizes(prefill_ladder(2048)), ElementsAre(4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048));
  EXPECT_THAT(core_sizes(prefill_ladder(3000)), ElementsAre(4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3000));
  EXPECT_THAT(core_sizes(decode_ladder(24)), ElementsAre(1, 2, 4, 8, 16, 24));
  EXPECT_THAT(core_sizes(std::vector<std::int64_t>{7}), ElementsAre(7));
  EXPECT_THAT(core_sizes(std::vector<std::int64_t>{100, 101, 102}), ElementsAre(100, 102));
  EXPECT_THAT(core_sizes({}), IsEmpty());
}

TEST(CapturePlan, EagerSamplesHaveBothEnds) {
  EXPECT_THAT(eager_samples(std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}), ElementsAre(1, 5, 6));
  EXPECT_THAT(eager_samples(std::vector<std::int64_t>{8}), ElementsAre(8));
}

}  // namespace
}  // namespace tessera
