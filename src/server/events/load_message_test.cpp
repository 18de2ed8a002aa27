// Catches: loads that subscribers cannot read, or whose numbers are in wrong places. The expected bytes are those of
// Python's msgspec for SGLang's LoadStat.
#include "tessera/server/events/load_message.h"

#include <gtest/gtest.h>

#include "tessera/server/events/hex_bytes_test_util.h"

namespace tessera {
namespace {

TEST(LoadMessage, IsTheNameAndTenNumbersInSglangsOrder) {
  const PublishedLoad load{.numbers = {.running = 1,
                                       .waiting = 2,
                                       .waiting_uncached_tokens = 300,
                                       .used_tokens = 4096,
                                       .total_tokens = 70'000,
                                       .capacity = 100'000},
                           .max_running_requests = 256,
                           .prefill = {.tokens = 5'000'000'000, .microseconds = 6'000'000'000}};
  EXPECT_EQ(hex_of_bytes(load_message(load, 3)),
            "9ba84c6f6164537461740102cd1000ce000186a003cd012cce00011170cd0100cf000000012a05f200cf0000000165a0bc00");
}

TEST(LoadMessage, AnIdleEngineHasAllNumbersToo) {
  EXPECT_EQ(hex_of_bytes(load_message({}, 0)), "9ba84c6f61645374617400000000000000000000");
}

}  // namespace
}  // namespace tessera
