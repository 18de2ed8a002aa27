// Catches: an address that is parsed as another address; an endless wait; a socket that listens on more than the named
// address.
#include "tessera/net/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "tessera/net/testing/free_port.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(NodeAddress, ParsesHostAndPort) {
  EXPECT_EQ(parse_node_address("10.0.0.1:5000").value(), (NodeAddress{"10.0.0.1", 5000}));
  EXPECT_EQ(parse_node_address("head.cluster:1").value(), (NodeAddress{"head.cluster", 1}));
  EXPECT_EQ(parse_node_address("[::1]:65535").value(), (NodeAddress{"::1", 65535}));
  EXPECT_EQ(parse_node_address("[::1]:80").value().text(), "[::1]:80");
  for (const char* wrong :
       {"", "host", ":80", "host:", "host:0", "host:65536", "host:8x", "::1:80", "[]:80", "host:-1"})
    EXPECT_EQ(parse_node_address(wrong).status().code(), StatusCode::kInvalidArgument) << wrong;
}

TEST(Listener, WaitsForANameThatIsKnownLater) {
  const NetClock::time_point began = NetClock::now();
  const Status unknown =
      Listener::open({"no-such-host.invalid", 4711}, began + std::chrono::milliseconds(300)).status();
  EXPECT_GE(NetClock::now() - began, std::chrono::milliseconds(300)) << "it was asked for once";
  EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(unknown.message(), HasSubstr("no-such-host.invalid:4711: the host's name cannot be resolved"));
}

TEST(Listener, NamesAPortThatIsTaken) {
  const NodeAddress address{"127.0.0.1", testing::free_port()};
  const Result<Listener> first = Listener::open(address, NetClock::now());
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  const Status second = Listener::open(address, NetClock::now()).status();
  EXPECT_EQ(second.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(second.message(), HasSubstr(address.text() + ": Address already in use"));
}

TEST(Listener, ListensOnlyOnTheNamedAddress) {
  const std::uint16_t port = testing::free_port();
  Listener listener = Listener::open({"127.0.0.1", port}, NetClock::now()).value();
  const auto soon = NetClock::now() + milliseconds(300);
  EXPECT_THAT(connect_until({"127.0.0.2", port}, soon).status().message(), HasSubstr("Connection refused"));
  EXPECT_TRUE(connect_until({"127.0.0.1", port}, NetClock::now() + milliseconds(2000)).ok());
}

TEST(Listener, AcceptEndsAtTheDeadline) {
  Listener listener = Listener::open({"127.0.0.1", testing::free_port()}, NetClock::now()).value();
  EXPECT_FALSE(listener.accept(NetClock::now() + milliseconds(50)).value().has_value());
}

TEST(Socket, TransfersManyBytesInManyParts) {
  const NodeAddress address{"127.0.0.1", testing::free_port()};
  Listener listener = Listener::open(address, NetClock::now()).value();
  std::vector<std::byte> sent(5'000'000);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 31);
  std::thread sender([&] {
    Socket socket = connect_until(address, NetClock::now() + milliseconds(5000)).value();
    std::vector<std::span<const std::byte>> parts;
    for (std::size_t at = 0; at < sent.size(); at += 12'345)
      parts.push_back(std::span(sent).subspan(at, std::min<std::size_t>(12'345, sent.size() - at)));
    parts.insert(parts.begin() + 1, std::span<const std::byte>());
    EXPECT_TRUE(socket.send(parts, milliseconds(5000)).ok());
  });
  Socket socket = *listener.accept(NetClock::now() + milliseconds(5000)).value();
  std::vector<std::byte> got(sent.size());
  for (std::size_t at = 0; at < got.size();) {
    const Result<std::size_t> n = socket.receive(std::span(got).subspan(at), milliseconds(5000));
    ASSERT_TRUE(n.ok() && *n > 0);
    at += *n;
  }
  sender.join();
  EXPECT_TRUE(got == sent);
  EXPECT_EQ(socket.receive(got, milliseconds(5000)).status().code(), StatusCode::kDeviceLost) << "it was closed";
}

TEST(Socket, SendGivesUpIfNothingIsRead) {
  const NodeAddress address{"127.0.0.1", testing::free_port()};
  Listener listener = Listener::open(address, NetClock::now()).value();
  Socket socket = connect_until(address, NetClock::now() + milliseconds(5000)).value();
  const Socket silent = *listener.accept(NetClock::now() + milliseconds(5000)).value();
  const std::vector<std::byte> much(64 << 20);
  const std::array parts = {std::span<const std::byte>(much)};
  EXPECT_THAT(socket.send(parts, milliseconds(100)).message(), HasSubstr("it accepted no bytes for 0.1 s"));
}

TEST(ConnectUntil, NamesTheLastReason) {
  const Status refused =
      connect_until({"127.0.0.1", testing::free_port()}, NetClock::now() + milliseconds(150)).status();
  EXPECT_EQ(refused.code(), StatusCode::kNotFound);
  EXPECT_THAT(refused.message(), HasSubstr("Connection refused"));
}

}  // namespace
}  // namespace tessera
