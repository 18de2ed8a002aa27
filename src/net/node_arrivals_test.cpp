// Catches: a foreign client that delays the nodes or holds a connection forever; a log that foreign clients fill.
#include "tessera/net/node_arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <vector>

#include "tessera/net/testing/free_port.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

NetClock::time_point in_ms(int ms) { return NetClock::now() + milliseconds(ms); }

class Arrivals : public ::testing::Test {
 protected:
  NodeArrivals listen(ArrivalLimits limits) const {
    return NodeArrivals(Listener::open(address_, in_ms(0)).value(), limits);
  }
  Socket connect() const { return connect_until(address_, in_ms(5'000)).value(); }
  static void say(Socket& socket, std::span<const std::byte> bytes) {
    EXPECT_TRUE(socket.send(std::array{bytes}, milliseconds(1'000)).ok());
  }
  static void say_hello(Socket& socket) {
    const std::vector<std::byte> said = pack_hello({.node = 1});
    EXPECT_TRUE(
        send_frame(socket, FrameKind::kHello, std::array{std::span<const std::byte>(said)}, milliseconds(1'000)).ok());
  }
  // Returns whether this end learns within `ms` that the other end closed the connection.
  static bool is_closed(Socket& socket, int ms) {
    std::byte any{};
    return !socket.receive(std::span(&any, 1), milliseconds(ms)).ok();
  }

  const NodeAddress address_{"127.0.0.1", testing::free_port()};
};

TEST_F(Arrivals, SilentStrangersDoNotDelayANode) {
  NodeArrivals arrivals = listen({.hello = milliseconds(60'000), .unheard = 8});
  std::vector<Socket> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(connect());
  Socket node = connect();
  say_hello(node);
  const auto come = arrivals.next(in_ms(10'000));
  ASSERT_TRUE(come.ok() && come->has_value());
  EXPECT_EQ((**come).hello.node, 1);
}

// Makes ten times as many silent connections as node 0 reads at once. Some come before the node's connection and some
// after it.
TEST_F(Arrivals, AFloodOfConnectionsKeepsNoNodeOut) {
  NodeArrivals arrivals = listen({.hello = milliseconds(60'000), .unheard = 4});
  std::future<Result<std::optional<NodeArrivals::Arrival>>> next =
      std::async(std::launch::async, [&] { return arrivals.next(in_ms(20'000)); });
  std::vector<Socket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connect());
  Socket node = connect();
  say_hello(node);
  for (int i = 0; i < 20; ++i) silent.push_back(connect());
  const auto come = next.get();
  ASSERT_TRUE(come.ok() && come->has_value());
  EXPECT_TRUE(is_closed(silent.front(), 5'000)) << "the oldest one makes room";
}

TEST_F(Arrivals, AnUnfinishedHelloIsClosedInTime) {
  NodeArrivals arrivals = listen({.hello = milliseconds(200), .unheard = 4});
  Socket slow = connect();
  const std::uint64_t magic = 0x3165646f6e727374;
  say(slow, std::as_bytes(std::span(&magic, 1)));
  const NetClock::time_point began = NetClock::now();
  const auto come = arrivals.next(in_ms(1'000));
  ASSERT_TRUE(come.ok());
  EXPECT_FALSE(come->has_value());
  EXPECT_TRUE(is_closed(slow, 0));
  EXPECT_GE(NetClock::now() - began, milliseconds(1'000)) << "it waits on for nodes";
}

TEST_F(Arrivals, AStrangerIsLoggedOnce) {
  NodeArrivals arrivals = listen({});
  ::testing::internal::CaptureStderr();
  const std::string asks = "GET / HTTP/1.1\r\n\r\n";
  for (int i = 0; i < 5; ++i) {
    Socket stranger = connect();
    say(stranger, std::as_bytes(std::span(asks)));
    EXPECT_FALSE(arrivals.next(in_ms(100)).value().has_value());
  }
  const std::string logged = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(logged, HasSubstr("it began with"));
  EXPECT_EQ(std::count(logged.begin(), logged.end(), '\n'), 1) << logged;
}

TEST_F(Arrivals, ManyReasonsAreLoggedUpToALimit) {
  NodeArrivals arrivals = listen({});
  ::testing::internal::CaptureStderr();
  for (std::uint64_t i = 0; i < 2 * NodeArrivals::kMostLogged; ++i) {
    Socket stranger = connect();
    say(stranger, std::as_bytes(std::span(&i, 1)));
    EXPECT_FALSE(arrivals.next(in_ms(10)).value().has_value());
  }
  const std::string logged = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(logged, HasSubstr("are not reported"));
  EXPECT_EQ(std::count(logged.begin(), logged.end(), '\n'), std::ptrdiff_t{NodeArrivals::kMostLogged} + 1) << logged;
  EXPECT_LT(NodeArrivals::shortened(std::string(10'000, 'x')).size(), 600U);
}

}  // namespace
}  // namespace tessera
