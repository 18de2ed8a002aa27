// TCP connections between the processes of one engine: addresses, listening, connecting, and transfers with time
// limits.
//
// Threads: one thread may send while another receives. Any thread may call shut_down().
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

// Converts milliseconds to seconds, for messages.
inline double in_seconds(std::chrono::milliseconds ms) { return std::chrono::duration<double>(ms).count(); }

struct NodeAddress {
  std::string host;  // a host name or an IP address, without brackets
  std::uint16_t port = 0;

  std::string text() const;  // returns "host:port", or "[::1]:port" for IPv6
  friend bool operator==(const NodeAddress&, const NodeAddress&) = default;
};
// Parses "HOST:PORT", or "[::1]:PORT" for IPv6. Returns kInvalidArgument for any other text. The message says what is
// accepted.
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
  std::string peer() const;  // returns an address such as "10.0.0.2:4711"
  // Sends all bytes of `parts` in order. Returns kDeviceLost if the other end is gone or accepts no bytes for the time
  // `limit`.
  Status send(std::span<const std::span<const std::byte>> parts, std::chrono::milliseconds limit);
  // Receives up to to.size() bytes. Returns at once if data are available. Otherwise waits up to `limit` for the first
  // data. Returns the number of received bytes, or 0 if no data came. Returns kDeviceLost if the other end is gone.
  Result<std::size_t> receive(std::span<std::byte> to, std::chrono::milliseconds limit);
  // Ends this side's sending. The other end still reads all data that were sent, and then the end of the stream.
  void end_sending();
  // Ends the connection in both directions. Threads that wait in this socket return with an error.
  void shut_down();

 private:
  int descriptor_ = -1;
};

class Listener {
 public:
  // Listens on exactly this address. If the address's name cannot be resolved yet, waits until `deadline` at most.
  // Returns kInvalidArgument if the name stays unknown, the address is in use, or the address does not belong to this
  // machine.
  static Result<Listener> open(const NodeAddress& address, NetClock::time_point deadline);
  // Returns the next connection; nothing if none comes before `deadline`.
  Result<std::optional<Socket>> accept(NetClock::time_point deadline);
  int descriptor() const { return socket_.descriptor(); }

 private:
  explicit Listener(Socket socket) : socket_(std::move(socket)) {}
  Socket socket_;
};

// Waits until one of `descriptors` can be read, or until `deadline`. A descriptor can be read if it has data, a new
// connection or the end of its stream.
void wait_to_read(std::span<const int> descriptors, NetClock::time_point deadline);

// Connects. Retries until `deadline`, because the other process and its name may become available later. If no attempt
// succeeds, returns kNotFound with the reason of the last one.
Result<Socket> connect_until(const NodeAddress& address, NetClock::time_point deadline);

}  // namespace tessera
