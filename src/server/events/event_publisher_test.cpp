// Tests the publisher of prefix cache events, which sends numbered batches of events to subscribers and sends earlier
// batches again on request (a replay). Catches: batches that are lost, reordered or numbered wrongly; replays that
// leave gaps; a subscriber that delays the engine; and malformed requests for a replay that stop or confuse the
// publisher.
#include "tessera/server/events/event_publisher.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

#include "tessera/server/events/zmq_context.h"
#include "tessera/server/events/zmq_peer_test_util.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EventPublisherTest : public ::testing::Test {
 protected:
  EventPublisherTest() {
    options_.endpoint = fmt::format("ipc:///tmp/tessera_events_{}", getpid());
    options_.replay_endpoint = options_.endpoint + "_replay";
    options_.topic = "kv@pod@model";
  }
  void start() {
    Result<std::unique_ptr<EventPublisher>> made = EventPublisher::create(options_, 0, 16);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    publisher_ = *std::move(made);
  }
  void add(std::uint64_t id) { publisher_->add({BlocksRemoved{.ids = {id}}}); }
  // Publishes batches until the subscriber gets one, because a subscription takes effect with a delay. Returns the
  // number of the last published batch.
  std::uint64_t reach(ZmqPeer& subscriber) {
    subscriber.set(ZMQ_RCVTIMEO, 20);
    for (std::uint64_t number = 0;; ++number) {
      add(number);
      if (!subscriber.receive().empty() || number > 500) {
        while (!subscriber.receive().empty()) {
        }
        subscriber.set(ZMQ_RCVTIMEO, kReceiveMs);
        return number;
      }
    }
  }
  static ZmqFrames request(std::uint64_t first) { return {"", number_bytes(first)}; }
  // Returns the numbers of all replayed batches.
  std::vector<std::string> replayed(ZmqPeer& client) {
    std::vector<std::string> numbers;
    for (;;) {
      const ZmqFrames frames = client.receive();
      if (frames.size() != 4) return {"no end"};
      if (frames[2] == number_bytes(UINT64_MAX)) return numbers;
      EXPECT_EQ(frames[1], options_.topic);
      numbers.push_back(frames[2]);
    }
  }

  KvEventsOptions options_{.enabled = true};
  std::unique_ptr<EventPublisher> publisher_;
};

TEST_F(EventPublisherTest, ASubscriberGetsTopicNumberAndMessage) {
  start();
  ZmqPeer subscriber(ZMQ_SUB, options_.endpoint);
  const std::uint64_t last = reach(subscriber);
  add(77);
  const ZmqFrames frames = subscriber.receive();
  ASSERT_THAT(frames, SizeIs(3));
  EXPECT_EQ(frames[0], "kv@pod@model");
  EXPECT_EQ(frames[1], number_bytes(last + 1));
  EXPECT_THAT(frames[2], HasSubstr("BlockRemoved"));
}

TEST_F(EventPublisherTest, ALateSubscriberAsksForEarlierBatches) {
  start();
  for (std::uint64_t id = 0; id < 5; ++id) add(id);
  ZmqPeer client(ZMQ_DEALER, options_.replay_endpoint);
  while (publisher_->published() < 5) usleep(1000);
  client.send(request(3));
  EXPECT_THAT(replayed(client), ElementsAre(number_bytes(3), number_bytes(4)));
  client.send(request(9));
  EXPECT_THAT(replayed(client), IsEmpty()) << "there is none yet, and the end says so";
  EXPECT_EQ(publisher_->replayed(), 2);
}

TEST_F(EventPublisherTest, OnlyTheLastBatchesAreKept) {
  options_.buffer_steps = 2;
  start();
  for (std::uint64_t id = 0; id < 5; ++id) add(id);
  ZmqPeer client(ZMQ_DEALER, options_.replay_endpoint);
  while (publisher_->published() < 5) usleep(1000);
  client.send(request(0));
  EXPECT_THAT(replayed(client), ElementsAre(number_bytes(3), number_bytes(4)));
}

TEST_F(EventPublisherTest, WrongRequestsAreIgnored) {
  start();
  add(0);
  ZmqPeer client(ZMQ_DEALER, options_.replay_endpoint);
  while (publisher_->published() < 1) usleep(1000);
  client.send({"x"});
  client.send({"", "1234567"});
  client.send({"", number_bytes(0), "more"});
  client.send({"x", number_bytes(0)});
  client.send(request(0));
  EXPECT_THAT(replayed(client), ElementsAre(number_bytes(0)));
  EXPECT_EQ(publisher_->replayed(), 1);
}

TEST_F(EventPublisherTest, ASubscriberThatDoesNotReadDelaysNobody) {
  options_.hwm = 1;
  options_.buffer_steps = 10;
  start();
  ZmqPeer subscriber(ZMQ_SUB, options_.endpoint);
  reach(subscriber);
  const std::int64_t before = publisher_->published() + publisher_->dropped();
  const CacheEvents large{BlocksStored{.ids = {1}, .tokens = std::vector<TokenId>(1000), .images = {{}}}};
  const auto began = std::chrono::steady_clock::now();
  constexpr int kBatches = 20'000;
  for (int i = 0; i < kBatches; ++i) publisher_->add(large);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  while (publisher_->published() + publisher_->dropped() < before + kBatches) usleep(1000);
  EXPECT_EQ(publisher_->dropped(), 0) << "the queue had room";
}

TEST_F(EventPublisherTest, AFullQueueLeavesAGapInTheNumbers) {
  options_.max_queue_size = 1;
  start();
  constexpr std::int64_t kBatches = 2000;
  for (int i = 0; i < kBatches; ++i) add(1);
  while (publisher_->published() + publisher_->dropped() < kBatches) usleep(1000);
  EXPECT_GT(publisher_->dropped(), 0);
  ZmqPeer client(ZMQ_DEALER, options_.replay_endpoint);
  client.send(request(0));
  EXPECT_EQ(std::ssize(replayed(client)), publisher_->published());
}

TEST_F(EventPublisherTest, WaitingBatchesAreSentAtTheEnd) {
  start();
  ZmqPeer subscriber(ZMQ_SUB, options_.endpoint);
  reach(subscriber);
  for (int i = 0; i < 100; ++i) add(1);
  publisher_.reset();
  int received = 0;
  subscriber.set(ZMQ_RCVTIMEO, 500);
  while (!subscriber.receive().empty()) ++received;
  EXPECT_EQ(received, 100);
}

TEST_F(EventPublisherTest, AnAddressInUseIsNamed) {
  options_ = {.enabled = true, .endpoint = local_endpoint(free_ports(1)), .bind = true};
  start();
  const Result<std::unique_ptr<EventSockets>> second = EventSockets::open(options_, 0);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(),
              HasSubstr("\"endpoint\": cannot listen at " + options_.endpoint + ": Address"));
  publisher_.reset();
  EXPECT_TRUE(EventSockets::open(options_, 0).ok()) << "the address is free again at once";
}

TEST(ZmqLibrary, AMissingLibraryIsNamed) {
  const Result<ZmqLibrary> library = ZmqLibrary::open("libzmq.so.999");
  ASSERT_FALSE(library.ok());
  EXPECT_THAT(library.status().message(), HasSubstr("install it (Debian and Ubuntu: libzmq5"));
}

}  // namespace
}  // namespace tessera
