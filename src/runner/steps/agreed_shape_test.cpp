// Catches: ranks that choose different graphs for the same forward, and a prefill that is treated as a decode because
// another rank decodes.
#include "tessera/runner/steps/agreed_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tessera {
namespace {

// Returns the shape that the ranks agree on, after checking that all of them got the same shape.
BatchShape agreed(const std::vector<BatchShape>& shapes) {
  const auto group = Communicator::create_group(static_cast<int>(shapes.size()));
  std::vector<BatchShape> made(shapes.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < shapes.size(); ++r) {
    threads.emplace_back([&, r] {
      const Result<BatchShape> shape = agree_on_shape(*group[r], shapes[r]);
      ASSERT_TRUE(shape.ok()) << shape.status().to_string();
      made[r] = *shape;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const BatchShape& shape : made) {
    EXPECT_EQ(shape.tokens, made[0].tokens);
    EXPECT_EQ(shape.all_rows_wanted, made[0].all_rows_wanted);
  }
  return made[0];
}

BatchShape decode(std::int64_t requests) {
  return {.tokens = requests, .requests = requests, .decodes = true, .all_rows_wanted = true};
}

TEST(AgreedShape, HasRoomForEveryRank) {
  const BatchShape shape = agreed({decode(3), {}, decode(7)});
  EXPECT_EQ(shape.tokens, 7);
  EXPECT_EQ(shape.requests, 7);
  EXPECT_TRUE(shape.decodes);
  EXPECT_TRUE(shape.all_rows_wanted);
  EXPECT_FALSE(shape.force_eager);
}

TEST(AgreedShape, IsADecodeWhereAllRanksDecode) {
  EXPECT_FALSE(agreed({decode(3), {.tokens = 40, .requests = 1}}).decodes);
  // One rank has a prompt of three tokens and wants all logits. The other has three decoding requests.
  EXPECT_FALSE(agreed({decode(3), {.tokens = 3, .requests = 1, .all_rows_wanted = true}}).decodes);
}

TEST(AgreedShape, IsEagerWhereOneRankIs) {
  BatchShape eager = decode(1);
  eager.force_eager = true;
  EXPECT_TRUE(agreed({decode(2), eager}).force_eager);
}

TEST(AgreedShape, NeedsTokensOfSomeRank) {
  const auto group = Communicator::create_group(1);
  EXPECT_THAT(agree_on_shape(*group[0], {}).status().message(), ::testing::HasSubstr("no rank has tokens"));
}

}  // namespace
}  // namespace tessera
