#include "tessera/net/frame.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

constexpr std::uint64_t kMagic = 0x3165646f6e727374;  // the bytes of the text "tsrnode1"
// While a payload arrives, its buffer grows in steps of this many bytes. The buffer is therefore at most this many
// bytes larger than what has arrived.
constexpr std::size_t kStep = std::size_t{16} << 20;

}  // namespace

Status send_frame(Socket& socket, FrameKind kind, FrameParts parts, std::chrono::milliseconds limit) {
  FrameReader::Header header{.magic = kMagic, .kind = static_cast<std::uint64_t>(kind), .bytes = 0};
  std::vector<std::span<const std::byte>> all{std::as_bytes(std::span(&header, 1))};
  for (const std::span<const std::byte> part : parts) {
    header.bytes += part.size();
    all.push_back(part);
  }
  if (header.bytes > kMostFrameBytes)
    return resource_exhausted(
        fmt::format("a message of {} bytes between nodes; at most {} are accepted", header.bytes, kMostFrameBytes));
  return socket.send(all, limit);
}

Status FrameReader::check_magic() const {
  if (header_.magic == kMagic) return ok_status();
  return data_loss(fmt::format("it began with {:#x}, which is no message of a node", header_.magic));
}

Status FrameReader::check_header() const {
  if (header_.kind < 1 || header_.kind > kLastFrame)
    return data_loss(fmt::format("it sent kind {}, which is no message of a node", header_.kind));
  if (header_.bytes > most_bytes_)
    return data_loss(fmt::format("it sent a message of {} bytes; at most {} are accepted", header_.bytes, most_bytes_));
  return ok_status();
}

Result<FrameReader::Progress> FrameReader::advance(Socket& socket, std::chrono::milliseconds limit) {
  if (whole_) {
    whole_ = false;
    got_ = 0;
    payload_.clear();
  }
  std::size_t come = 0;
  if (got_ < sizeof(Header)) {
    come = TRY(socket.receive(std::as_writable_bytes(std::span(&header_, 1)).subspan(got_), limit));
    got_ += come;
    // Checks the magic number as soon as it has arrived, because a foreign client may never send a whole header.
    if (got_ >= sizeof(header_.magic)) TRY(check_magic());
    if (got_ < sizeof(Header)) return come > 0 ? Progress::kSome : Progress::kNothing;
    TRY(check_header());
    // Usually the rest of a frame has arrived together with its header, so the next reads do not wait.
    limit = std::chrono::milliseconds(0);
  }
  for (std::size_t at = got_ - sizeof(Header); at < header_.bytes; at = got_ - sizeof(Header)) {
    if (at == payload_.size()) payload_.resize(std::min<std::size_t>(header_.bytes, at + kStep));
    const std::size_t n = TRY(socket.receive(std::span(payload_).subspan(at), limit));
    if (n == 0) return come > 0 ? Progress::kSome : Progress::kNothing;
    come += n;
    got_ += n;
    limit = std::chrono::milliseconds(0);
  }
  whole_ = true;
  return Progress::kFrame;
}

Status receive_frame(Socket& socket, FrameReader& reader, NetClock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - NetClock::now());
    if (left.count() <= 0) return device_lost("it sent nothing in time");
    if (TRY(reader.advance(socket, left)) == FrameReader::Progress::kFrame) return ok_status();
  }
}

}  // namespace tessera
