// Catches: an answer that counts as the answer to another message; a buffer that is overwritten while a rank reads it;
// an endless wait; and ranks that start although their plans contradict each other.
#include "tessera/runner/ranks/rank_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tessera/runner/ranks/rank_order.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RankChannel, EveryRankGetsEveryMessageInOrder) {
  constexpr int kRanks = 4;
  RankChannel channel(kRanks, std::chrono::seconds(60));
  std::vector<std::thread> threads;
  for (int rank = 1; rank < kRanks; ++rank) {
    threads.emplace_back([&channel, rank] {
      std::uint64_t expected = 1;
      while (const std::optional<RankChannel::Message> message = channel.receive(rank)) {
        EXPECT_EQ(message->number, expected++);
        std::int64_t sum = rank;
        for (const std::byte b : message->bytes) sum += static_cast<std::int64_t>(b);
        channel.reply(rank, message->number, {.value = sum});
      }
    });
  }
  for (std::uint64_t n = 1; n <= 2000; ++n) {
    std::vector<std::byte>& message = **channel.begin();
    message.assign(n % 50, static_cast<std::byte>(n % 7));
    ASSERT_EQ(channel.send(), n);
    if (n % 3 != 0) continue;  // the other messages stay unanswered for a while
    ASSERT_TRUE(channel.wait(n).ok());
    for (int rank = 1; rank < kRanks; ++rank)
      EXPECT_EQ(channel.answer(n, rank).value, rank + static_cast<std::int64_t>((n % 50) * (n % 7)));
  }
  channel.close();
  for (std::thread& thread : threads) thread.join();
}

TEST(RankChannel, LostRanksEndEveryWait) {
  RankChannel channel(3, std::chrono::seconds(60));
  ASSERT_TRUE(channel.begin().ok());
  const std::uint64_t number = channel.send();
  EXPECT_TRUE(channel.lost().ok());
  std::thread loses([&channel] { channel.lose(device_lost("node 1 is gone")); });
  EXPECT_THAT(channel.wait(number).message(), HasSubstr("node 1 is gone"));
  loses.join();
  channel.lose(device_lost("node 2 is gone"));
  EXPECT_THAT(channel.lost().message(), HasSubstr("node 1 is gone"));
}

// A process without rank 0 uses a channel for its own ranks. The channel reports each answer through OnReply.
TEST(RankChannel, ServesTheRanksOfOneProcess) {
  std::vector<std::pair<int, std::uint64_t>> replied;
  RankChannel channel({.first = 2, .end = 4}, 4, std::chrono::milliseconds(50),
                      [&](int rank, std::uint64_t number, const RankAnswer&) { replied.emplace_back(rank, number); });
  ASSERT_TRUE(channel.begin().ok());
  const std::uint64_t number = channel.send();
  channel.reply(2, number, {});
  EXPECT_THAT(channel.wait(number).message(), HasSubstr("rank 3 of 4 did not answer"));
  channel.reply(3, number, {});
  EXPECT_TRUE(channel.wait(number).ok());
  EXPECT_THAT(replied, ElementsAre(std::pair(2, number), std::pair(3, number)));
}

// Another node may send anything. If it sends a second answer to a message, this answer must not overwrite the first
// one, which rank 0 may be reading.
TEST(RankChannel, TakesOnlyTheNextAnswerOfAnotherNode) {
  RankChannel channel(3, std::chrono::seconds(60));
  EXPECT_EQ(channel.take_reply(1, 1, {}).code(), StatusCode::kDataLoss) << "nothing was asked";
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(channel.begin().ok());
    channel.send();
  }
  EXPECT_EQ(channel.take_reply(1, 2, {}).code(), StatusCode::kDataLoss) << "the first is to be answered before";
  ASSERT_TRUE(channel.take_reply(1, 1, {.value = 7}).ok());
  EXPECT_EQ(channel.take_reply(1, 1, {.value = 8}).code(), StatusCode::kDataLoss) << "again";
  EXPECT_EQ(channel.answer(1, 1).value, 7);
  for (const int rank : {-1, 0, 3, 1 << 20})
    EXPECT_EQ(channel.take_reply(rank, 1, {}).code(), StatusCode::kDataLoss) << rank;
  ASSERT_TRUE(channel.take_reply(1, 2, {}).ok());
  ASSERT_TRUE(channel.take_reply(1, 3, {}).ok());
  EXPECT_THAT(channel.take_reply(1, 4, {}).message(), HasSubstr("it sent an answer of rank 1 to message 4"));
}

TEST(RankChannel, ARankThatDoesNotAnswerIsNamed) {
  RankChannel channel(4, std::chrono::milliseconds(50));
  ASSERT_TRUE(channel.begin().ok());
  const std::uint64_t number = channel.send();
  channel.reply(2, number, {});
  const Status status = channel.wait(number);
  EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(status.message(), HasSubstr("ranks 1, 3 of 4 did not answer within 0.05 s"));
  for (std::uint64_t n = 2; n <= RankChannel::kSlots; ++n) {
    ASSERT_TRUE(channel.begin().ok());
    channel.send();
  }
  EXPECT_EQ(channel.begin().status().code(), StatusCode::kDeviceLost) << "its buffer is still to be read";
}

// The buffer must stay until all ranks have answered, since a rank may still read it. It also stays until wait(), since
// a connection may still send it.
TEST(RankChannel, FreesALargeBufferOnceAllHaveAnswered) {
  RankChannel channel(3, std::chrono::seconds(60));
  std::vector<std::byte>& large = **channel.begin();
  large.resize(RankChannel::kMostKeptBytes + 1);
  const std::uint64_t number = channel.send();
  channel.reply(1, number, {});
  EXPECT_EQ(large.size(), RankChannel::kMostKeptBytes + 1);
  channel.reply(2, number, {.value = 7});
  EXPECT_EQ(large.size(), RankChannel::kMostKeptBytes + 1) << "a connection may still be sending it";
  ASSERT_TRUE(channel.wait(number).ok());
  EXPECT_EQ(large.capacity(), 0U);
  EXPECT_EQ(channel.answer(number, 2).value, 7);

  std::vector<std::byte>& small = **channel.begin();
  small.resize(1000);
  const std::uint64_t next = channel.send();
  channel.reply(1, next, {});
  channel.reply(2, next, {});
  EXPECT_GE(small.capacity(), 1000U) << "the next message of its size allocates nothing";
}

TEST(RankLimits, AreWhatFitsAll) {
  RankLimits limits{.num_pages = {40, 9},
                    .prefill_sizes = {4, 8, 16},
                    .decode_sizes = {1, 2},
                    .vision_sizes = {64, 128, 192},
                    .max_running = 4};
  ASSERT_TRUE(limits
                  .agree({.num_pages = {33, 12},
                          .prefill_sizes = {4, 16, 32},
                          .decode_sizes = {},
                          .vision_sizes = {64, 128},
                          .max_running = 4})
                  .ok());
  EXPECT_THAT(limits.num_pages, ElementsAre(33, 9));
  EXPECT_THAT(limits.prefill_sizes, ElementsAre(4, 16));
  EXPECT_THAT(limits.decode_sizes, ElementsAre());
  EXPECT_THAT(limits.vision_sizes, ElementsAre(64, 128));
  RankLimits other = limits;
  other.max_running = 3;
  EXPECT_THAT(limits.agree(other).message(), HasSubstr("max_running_requests of at most 3 is accepted"));
  other.num_pages = {1};
  other.max_running = 4;
  EXPECT_EQ(limits.agree(other).code(), StatusCode::kInternal);
}

TEST(RankOrders, ArriveAsTheyWereSentAndRefuseOthers) {
  const RankOrder order{.kind = RankOrderKind::kSoak,
                        .role = RunnerRole::kDecode,
                        .size = 77,
                        .form = GraphForm::kFull,
                        .seed = ~0ULL,
                        .tolerance = 1e-5};
  std::vector<std::byte> message;
  MessageWriter writer(message, static_cast<std::uint32_t>(order.kind), 5);
  pack_order(order, writer);
  writer.finish();
  MessageReader reader = MessageReader::open(message).value();
  EXPECT_EQ(reader.kind(), static_cast<std::uint32_t>(RankOrderKind::kSoak));
  EXPECT_EQ(reader.message_number(), 5U);
  const RankOrder read = unpack_order(order.kind, reader).value();
  EXPECT_EQ(read.role, order.role);
  EXPECT_EQ(read.size, order.size);
  EXPECT_EQ(read.form, order.form);
  EXPECT_EQ(read.seed, order.seed);
  EXPECT_EQ(read.tolerance, order.tolerance);

  message[kMessageHeaderBytes] = std::byte{99};
  reader = MessageReader::open(message).value();
  EXPECT_THAT(unpack_order(order.kind, reader).status().message(), HasSubstr("role of a message is 99"));
}

TEST(RankOrders, CarryImagesLimitsAndMemory) {
  Patches image{
      .grid = {.t = 1, .h = 4, .w = 6}, .merge_size = 2, .patch_values = 3, .values = {1, 2, 3}, .content = {7, 8}};
  const Patches* images[] = {&image, &image};
  const std::int64_t rows[] = {5, 11};
  std::vector<std::byte> message;
  MessageWriter writer(message, 1, 1);
  pack_images(images, rows, writer);
  writer.finish();
  MessageReader reader = MessageReader::open(message).value();
  const ReceivedImages received = unpack_images(reader).value();
  ASSERT_EQ(received.images.size(), 2U);
  EXPECT_EQ(received.images[1].grid, image.grid);
  EXPECT_EQ(received.images[1].values, image.values);
  EXPECT_EQ(received.images[1].content, image.content);
  EXPECT_EQ(received.images[1].patch_values, 3);
  EXPECT_THAT(received.first_rows, ElementsAre(5, 11));

  MemoryReport memory;
  memory.set(MemoryUse::kArena, 30);
  memory.available = 9;
  MessageWriter of_memory(message, 1, 1);
  pack_memory(memory, of_memory);
  of_memory.finish();
  reader = MessageReader::open(message).value();
  const MemoryReport report = unpack_memory(reader).value();
  EXPECT_EQ(report.entries(), memory.entries());
  EXPECT_EQ(report.available, 9);

  const RankLimits limits{
      .num_pages = {3}, .prefill_sizes = {1, 2}, .decode_sizes = {}, .vision_sizes = {64}, .max_running = 4};
  MessageWriter of_limits(message, 1, 1);
  pack_limits(limits, of_limits);
  of_limits.finish();
  reader = MessageReader::open(message).value();
  EXPECT_EQ(unpack_limits(reader).value(), limits);
}

}  // namespace
}  // namespace tessera
