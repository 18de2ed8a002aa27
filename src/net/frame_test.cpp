// Catches: bytes of a foreign client that are taken for a message; memory that is allocated for a length before the
// data arrived; a frame that is assembled wrongly from pieces.
#include "tessera/net/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>

namespace tessera {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

struct Pair {
  Socket a;
  Socket b;
};

Pair connected() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  return {Socket(ends[0]), Socket(ends[1])};
}

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

void send_raw(Socket& socket, std::span<const std::byte> raw) {
  const std::array parts = {raw};
  ASSERT_TRUE(socket.send(parts, milliseconds(1000)).ok());
}

std::string frame_bytes(FrameKind kind, std::string_view content) {
  Pair pair = connected();
  const std::array parts = {bytes(content)};
  EXPECT_TRUE(send_frame(pair.a, kind, parts, milliseconds(1000)).ok());
  std::string raw(content.size() + 100, '\0');
  raw.resize(pair.b.receive(std::as_writable_bytes(std::span(raw)), milliseconds(1000)).value());
  return raw;
}

TEST(Frame, ArrivesAsItWasSent) {
  Pair pair = connected();
  const std::array parts = {bytes("ab"), bytes(""), bytes("cde")};
  ASSERT_TRUE(send_frame(pair.a, FrameKind::kOrder, parts, milliseconds(1000)).ok());
  ASSERT_TRUE(send_frame(pair.a, FrameKind::kAlive, {}, milliseconds(1000)).ok());
  FrameReader reader;
  const auto deadline = NetClock::now() + milliseconds(2000);
  ASSERT_TRUE(receive_frame(pair.b, reader, deadline).ok());
  EXPECT_EQ(reader.kind(), FrameKind::kOrder);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(reader.payload().data()), reader.payload().size()), "abcde");
  std::vector<std::byte> mine(7);
  reader.payload().swap(mine);
  ASSERT_TRUE(receive_frame(pair.b, reader, deadline).ok());
  EXPECT_EQ(reader.kind(), FrameKind::kAlive);
  EXPECT_TRUE(reader.payload().empty());
}

TEST(Frame, MayArriveOneByteAtATime) {
  Pair pair = connected();
  const std::string raw = frame_bytes(FrameKind::kAnswer, "hello there");
  FrameReader reader;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    send_raw(pair.a, bytes(raw).subspan(i, 1));
    const Result<FrameReader::Progress> progress = reader.advance(pair.b, milliseconds(1000));
    ASSERT_TRUE(progress.ok());
    EXPECT_EQ(*progress, i + 1 == raw.size() ? FrameReader::Progress::kFrame : FrameReader::Progress::kSome) << i;
  }
  EXPECT_EQ(reader.payload().size(), 11U);
  EXPECT_EQ(*reader.advance(pair.b, milliseconds(20)), FrameReader::Progress::kNothing);
}

TEST(Frame, AForeignProtocolIsRefused) {
  Pair pair = connected();
  send_raw(pair.a, bytes("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  FrameReader reader;
  const Status status = reader.advance(pair.b, milliseconds(1000)).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("no message of a node"));
}

TEST(Frame, EveryWrongHeaderIsRefused) {
  const std::string right = frame_bytes(FrameKind::kAlive, "");
  for (std::size_t at = 0; at < 16; ++at) {  // the bytes of magic and kind
    std::string wrong = right;
    wrong[at] = static_cast<char>(wrong[at] ^ 0x40);
    Pair pair = connected();
    send_raw(pair.a, bytes(wrong));
    FrameReader reader;
    EXPECT_EQ(reader.advance(pair.b, milliseconds(1000)).status().code(), StatusCode::kDataLoss) << at;
  }
}

TEST(Frame, ALengthAloneTakesNoMemory) {
  std::string lies = frame_bytes(FrameKind::kOrder, "");
  const std::uint64_t length = kMostFrameBytes;
  std::memcpy(lies.data() + 16, &length, sizeof(length));
  Pair pair = connected();
  send_raw(pair.a, bytes(lies));
  FrameReader reader;
  ASSERT_TRUE(reader.advance(pair.b, milliseconds(100)).ok());
  EXPECT_LE(reader.payload().capacity(), std::size_t{16} << 20);

  const std::uint64_t longer = kMostFrameBytes + 1;
  std::memcpy(lies.data() + 16, &longer, sizeof(longer));
  Pair other = connected();
  send_raw(other.a, bytes(lies));
  FrameReader strict;
  EXPECT_THAT(strict.advance(other.b, milliseconds(100)).status().message(), HasSubstr("at most 4294967296"));
}

TEST(Frame, ASilentSenderTimesOut) {
  Pair pair = connected();
  FrameReader reader;
  EXPECT_EQ(receive_frame(pair.b, reader, NetClock::now() + milliseconds(50)).code(), StatusCode::kDeviceLost);
}

}  // namespace
}  // namespace tessera
