// The load of an engine says how busy it is, and the server sends it to gateways. Catches: changed loads that are not
// sent; unchanged loads that are sent too often; loads with a wrong sequence number, or at another engine's port; a
// failed engine whose last load is sent again and again; and addresses in use that are noticed too late.
#include "tessera/server/events/load_publisher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "tessera/server/events/zmq_peer_test_util.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::int64_t kFailed = -1;  // this value in running_ stands for a failed engine

class LoadPublisherTest : public ::testing::Test {
 protected:
  LoadPublisherTest() {
    Result<std::unique_ptr<LoadPublisher>> made =
        LoadPublisher::start(local_endpoint(port_), 2, 12, [this](int rank) -> std::optional<EngineStats> {
          EngineStats stats;
          stats.running = running_[static_cast<std::size_t>(rank)];
          if (stats.running == kFailed) return std::nullopt;
          return stats;
        });
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    publisher_ = *std::move(made);
  }
  static std::string message(int rank, std::int64_t running) {
    return load_message({.numbers = {.running = running}, .max_running_requests = 12}, rank);
  }
  // Returns the engine's next message that reports a load other than zero.
  static ZmqFrames next_busy(ZmqPeer& subscriber, int rank) {
    for (;;) {
      ZmqFrames frames = subscriber.receive();
      if (frames.empty() || frames.back() != message(rank, 0)) return frames;
    }
  }
  static std::uint64_t number_of(const ZmqFrames& frames) {
    std::uint64_t number = 0;
    for (const char byte : frames.at(1)) number = number << 8 | static_cast<unsigned char>(byte);
    return number;
  }

  const int port_ = free_ports(3) + 1;  // the port before it is free too
  std::array<std::atomic<std::int64_t>, 2> running_{};
  std::unique_ptr<LoadPublisher> publisher_;  // last member, because its thread reads the other members
};

TEST_F(LoadPublisherTest, AChangedLoadIsSentAtTheEnginesPort) {
  std::array<ZmqPeer, 2> peers{ZmqPeer(ZMQ_SUB, local_endpoint(port_)), ZmqPeer(ZMQ_SUB, local_endpoint(port_ + 1))};
  for (int rank = 0; rank < 2; ++rank) {
    ZmqPeer& peer = peers[static_cast<std::size_t>(rank)];
    EXPECT_THAT(peer.receive(), SizeIs(3)) << "the subscription takes effect with a repeated load";
    running_[static_cast<std::size_t>(rank)] = 5 + rank;
    const ZmqFrames frames = next_busy(peer, rank);
    ASSERT_THAT(frames, SizeIs(3));
    EXPECT_EQ(frames[0], "load");
    EXPECT_EQ(frames[2], message(rank, 5 + rank));
  }
}

TEST_F(LoadPublisherTest, AnUnchangedLoadIsRepeatedOnceASecond) {
  ZmqPeer peer(ZMQ_SUB, local_endpoint(port_));
  const ZmqFrames first = peer.receive();
  ASSERT_THAT(first, SizeIs(3));
  const auto began = LoadPublisher::Clock::now();
  const ZmqFrames second = peer.receive();
  ASSERT_THAT(second, SizeIs(3));
  EXPECT_GT(LoadPublisher::Clock::now() - began, std::chrono::milliseconds(500));
  EXPECT_EQ(second[2], first[2]);
  EXPECT_EQ(number_of(second), number_of(first) + 1);
}

TEST_F(LoadPublisherTest, AFailedEnginePublishesNothingMore) {
  ZmqPeer failed(ZMQ_SUB, local_endpoint(port_));
  ZmqPeer sound(ZMQ_SUB, local_endpoint(port_ + 1));
  EXPECT_THAT(failed.receive(), SizeIs(3));
  running_[0] = kFailed;
  failed.set(ZMQ_RCVTIMEO, 0);
  while (!failed.receive().empty()) {
  }
  failed.set(ZMQ_RCVTIMEO, 1500);  // longer than the time between two repetitions
  EXPECT_THAT(failed.receive(), SizeIs(0));
  EXPECT_THAT(sound.receive(), SizeIs(3));
}

TEST_F(LoadPublisherTest, AnAddressInUseIsNamed) {
  const Status second = check_load_endpoint(local_endpoint(port_ - 1), 2);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.message(), HasSubstr("cannot listen at " + local_endpoint(port_) + ": Address"));
  publisher_.reset();
  EXPECT_TRUE(check_load_endpoint(local_endpoint(port_), 2).ok());
  EXPECT_TRUE(check_load_endpoint("", 2).ok());
}

}  // namespace
}  // namespace tessera
