// TCP connections between the processes of one engine: addresses, listening, connecting, bytes with time limits.
//
// Threads: one may send while another receives; shut_down() may be called from any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/base/status.h"

namespace tessera {

using NetClock = std::chrono::steady_clock;

// For messages, which name times in seconds.
inline double in_seconds(std::chrono::milliseconds ms) { return std::chrono::duration<double>(ms).count(); }

struct NodeAddress {
  std::string host;  // a name or a number, without brackets
  std::uint16_t port = 0;

  std::string text() const;  // "host:port", "[::1]:port"
  friend bool operator==(const NodeAddress&, const NodeAddress&) = default;
};
// "HOST:PORT", of IPv6 "[::1]:PORT". kInvalidArgument says what is accepted.
Result<NodeAddress> parse_node_address(std::string_view text);

// An open connection, closed on destruction.
class Socket {
 public:
  Socket() = default;
  // Takes over a non-blocking descriptor.
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int descriptor() const { return descriptor_; }
  std::string peer() const;  // "10.0.0.2:4711"
  // All bytes of `parts`, in order. kDeviceLost where the other end is gone, or took nothing for `limit`.
  Status send(std::span<const std::span<const std::byte>> parts, std::chrono::milliseconds limit);
  // What there is, up to to.size() bytes, at once or as soon as it comes within `limit`; 0: nothing came.
  // kDeviceLost where the other end is gone.
  Result<std::size_t> receive(std::span<std::byte> to, std::chrono::milliseconds limit);
  // The other end reads the end of the stream behind what was sent.
  void end_sending();
  // Wakes who waits in it, with an error.
  void shut_down();

 private:
  int descriptor_ = -1;
};

class Listener {
 public:
  // On that address alone, whose name may be known later, up to `deadline`. kInvalidArgument where it is not, or the
  // address is taken, or none of this machine's.
  static Result<Listener> open(const NodeAddress& address, NetClock::time_point deadline);
  // The next connection; none where it did not come before `deadline`.
  Result<std::optional<Socket>> accept(NetClock::time_point deadline);
  int descriptor() const { return socket_.descriptor(); }

 private:
  explicit Listener(Socket socket) : socket_(std::move(socket)) {}
  Socket socket_;
};

// Until one of `descriptors` has something to be read or accepted, or has ended; at `deadline` at the latest.
void wait_to_read(std::span<const int> descriptors, NetClock::time_point deadline);

// Tries until it succeeds: the other process may start later, and its name be known later. kNotFound after `deadline`,
// with the last reason.
Result<Socket> connect_until(const NodeAddress& address, NetClock::time_point deadline);

}  // namespace tessera
