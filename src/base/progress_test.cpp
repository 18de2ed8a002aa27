// Catches: a bar that is drawn beyond its end, and a division by a total of zero.
#include "tessera/base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Progress, RendersShareAndUnit) {
  Progress bar("Loading", 4 << 20, "B", /*enabled=*/false);
  bar.set(1 << 20);
  EXPECT_THAT(bar.render(8), testing::StartsWith("Loading [##......] 1.0/4.0 MiB"));
  bar.advance(100 << 20);
  EXPECT_THAT(bar.render(8), testing::StartsWith("Loading [########] 4.0/4.0 MiB"));
  Progress empty("Nothing", 0, "sizes", false);
  EXPECT_THAT(empty.render(4), testing::StartsWith("Nothing [####] 0/0 sizes"));
}

}  // namespace
}  // namespace tessera
