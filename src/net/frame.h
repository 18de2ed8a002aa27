// A message on a connection is sent as a frame: a header, then a payload whose meaning depends on the frame's kind.
//
//   header   magic, kind, payload bytes     8 + 8 + 8 bytes, in the machine's byte order
//
// A received header is checked before memory is allocated. Memory is then allocated in steps of 16 MiB while bytes
// arrive, so a wrong length wastes at most one step of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/net/socket.h"

namespace tessera {

// The numbers of the kinds are part of the protocol. The numbers of kHello to kRefused never change, so that different
// versions can recognise each other.
enum class FrameKind : std::uint64_t {
  kHello = 1,    // identifies the connecting node (NodeHello)
  kWelcome = 2,  // all nodes have joined
  kRefused = 3,  // the node is refused; the payload is the reason as text
  kAlive = 4,
  kEnd = 5,      // the sender sends nothing more; the payload is "" for an orderly end, else the reason as text
  kOrder = 6,    // a command from node 0 to the ranks of a node
  kAnswer = 7,   // a rank's answer to a command
  kTensors = 8,  // the operands of a node's ranks in a collective
  kResult = 9,   // the result of the collective
  kAbort = 10,   // no collective can continue; the payload is the reason
  kRestart = 11,
  kStageValue = 12,  // a value that a rank sends to the next stage of a pipeline
  kStageTaken = 13,  // how many stage values the receiving rank has taken
  kForward = 14,     // a forward pass of all ranks has begun; the payload is the forward pass's number
  kStop = 15,        // all servers end, because one does; the payload is the number of that server's node
  kDone = 16,        // the node has no more requests; from node 0: no node has requests any more
};
inline constexpr std::uint64_t kLastFrame = 16;
inline constexpr std::size_t kMostFrameBytes = std::size_t{4} << 30;

using FrameParts = std::span<const std::span<const std::byte>>;  // the parts of a payload, sent one after another

// Sends a frame. Returns kResourceExhausted if the parts together exceed kMostFrameBytes. Other errors are those of
// Socket::send.
Status send_frame(Socket& socket, FrameKind kind, FrameParts parts, std::chrono::milliseconds limit);

class FrameReader {
 public:
  explicit FrameReader(std::size_t most_bytes = kMostFrameBytes) : most_bytes_(most_bytes) {}

  enum class Progress : std::uint8_t { kNothing, kSome, kFrame };
  // Receives what is available or arrives within `limit`. If the result is kFrame, a frame is complete. Until the next
  // call, kind() and payload() return the frame's kind and payload. Returns kDataLoss if the bytes are not a frame or
  // exceed the accepted length. Other errors are those of Socket::receive.
  Result<Progress> advance(Socket& socket, std::chrono::milliseconds limit);

  FrameKind kind() const { return static_cast<FrameKind>(header_.kind); }
  // Returns the payload, which the caller may swap for another buffer.
  std::vector<std::byte>& payload() { return payload_; }

 private:
  struct Header {
    std::uint64_t magic;
    std::uint64_t kind;
    std::uint64_t bytes;
  };
  friend Status send_frame(Socket&, FrameKind, FrameParts, std::chrono::milliseconds);
  Status check_magic() const;
  Status check_header() const;

  const std::size_t most_bytes_;
  Header header_{};
  std::size_t got_ = 0;  // number of received bytes of header and payload
  bool whole_ = false;
  std::vector<std::byte> payload_;
};

// Receives the next frame. Returns kDeviceLost if it does not arrive before `deadline`.
Status receive_frame(Socket& socket, FrameReader& reader, NetClock::time_point deadline);

}  // namespace tessera
