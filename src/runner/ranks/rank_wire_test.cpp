// Catches: an answer that loses information between processes, and an unreadable answer that is accepted.
#include "tessera/runner/ranks/rank_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(RankWire, AnAnswerArrivesAsItWasGiven) {
  const std::vector<std::byte> content = {std::byte{1}, std::byte{2}, std::byte{3}};
  const RankAnswer given{.status = resource_exhausted("no memory"),
                         .value = -7,
                         .digest = 0xfedcba9876543210,
                         .replay_failed = true,
                         .content = content};
  const Result<WiredAnswer> read = unpack_answer(pack_answer(3, 41, given));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->number, 41U);
  EXPECT_EQ(read->answer.status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(read->answer.status.message(), "no memory");
  EXPECT_EQ(read->answer.value, -7);
  EXPECT_EQ(read->answer.digest, 0xfedcba9876543210U);
  EXPECT_TRUE(read->answer.replay_failed);
  EXPECT_EQ(read->answer.content, content);
  EXPECT_TRUE(unpack_answer(pack_answer(1, 1, {}))->answer.status.ok());
}

TEST(RankWire, EveryCutAnswerIsRefused) {
  const std::vector<std::byte> whole = pack_answer(1, 2, {.status = internal_error("why"), .content = {std::byte{9}}});
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_EQ(unpack_answer(std::span(whole).first(bytes)).status().code(), StatusCode::kDataLoss) << bytes;
}

TEST(RankWire, AnUnknownStatusCodeIsRefused) {
  std::vector<std::byte> wrong = pack_answer(1, 2, {});
  wrong[32 + 8] = std::byte{99};  // the status code comes after the 32-byte header and the rank
  EXPECT_THAT(unpack_answer(wrong).status().message(), ::testing::HasSubstr("code of a message is 99"));
}

}  // namespace
}  // namespace tessera
