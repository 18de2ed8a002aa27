// Frames: how messages go over a connection. A header, then its bytes, whose meaning the kind says.
//
//   header   magic, kind, bytes that follow     8 + 8 + 8 bytes, in the byte order of the machine
//
// What comes is checked before memory is taken for it, and memory is taken as it comes: a wrong length costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/net/socket.h"

namespace tessera {

// The numbers are part of the form. kHello to kRefused keep their form for ever, so that versions can tell each other
// apart.
enum class FrameKind : std::uint64_t {
  kHello = 1,    // who connects (NodeHello)
  kWelcome = 2,  // all nodes are here
  kRefused = 3,  // why not, as text
  kAlive = 4,
  kEnd = 5,      // the sender sends nothing more: it ends in order, or why not, as text
  kOrder = 6,    // node 0's, to the ranks of a node
  kAnswer = 7,   // a rank's, to an order
  kTensors = 8,  // of a node's ranks, in a collective
  kResult = 9,   // of that
  kAbort = 10,   // no collective can go on; why
  kRestart = 11,
  kStageValue = 12,  // of a rank, to the next stage of a pipeline
  kStageTaken = 13,  // how many of them the next stage has received
  kForward = 14,     // a rank awaits all others in the forward of this number
  kStop = 15,        // the server of a node ends, whose number it is: all end
  kDone = 16,        // it has no requests any more; node 0's: no node has
};
inline constexpr std::uint64_t kLastFrame = 16;
inline constexpr std::size_t kMostFrameBytes = std::size_t{4} << 30;

using FrameParts = std::span<const std::span<const std::byte>>;  // one after another

// kResourceExhausted where the parts have more than kMostFrameBytes together; errors as Socket::send.
Status send_frame(Socket& socket, FrameKind kind, FrameParts parts, std::chrono::milliseconds limit);

class FrameReader {
 public:
  explicit FrameReader(std::size_t most_bytes = kMostFrameBytes) : most_bytes_(most_bytes) {}

  enum class Progress : std::uint8_t { kNothing, kSome, kFrame };
  // Takes what there is, or comes within `limit`. After kFrame, kind() and payload() are those of a whole frame until
  // the next call. kDataLoss where what comes is no frame, or longer than accepted; else as Socket::receive.
  Result<Progress> advance(Socket& socket, std::chrono::milliseconds limit);

  FrameKind kind() const { return static_cast<FrameKind>(header_.kind); }
  // The caller may swap it for a buffer of its own.
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
  std::size_t got_ = 0;  // of header and payload
  bool whole_ = false;
  std::vector<std::byte> payload_;
};

// The next frame. kDeviceLost where it did not come before `deadline`.
Status receive_frame(Socket& socket, FrameReader& reader, NetClock::time_point deadline);

}  // namespace tessera
