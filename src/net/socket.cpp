#include "tessera/net/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

namespace tessera {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

constexpr std::chrono::milliseconds kPause(100);  // pause between two attempts to resolve a name or to connect

std::string error_text(int error) { return std::generic_category().message(error); }

Result<Addresses> resolve(const NodeAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return not_found(fmt::format("the host's name cannot be resolved: {}", ::gai_strerror(error)));
  return Addresses(found, &freeaddrinfo);
}

Socket open_socket(const addrinfo& at) {
  return Socket(::socket(at.ai_family, at.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at.ai_protocol));
}

// Disables Nagle's algorithm. The other end waits for small messages, which the algorithm would delay.
void send_at_once(const Socket& socket) {
  const int on = 1;
  ::setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Waits until one descriptor is ready for its events or has an error. Returns false if `deadline` passes first.
bool any_ready(std::span<pollfd> waited, NetClock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - NetClock::now());
    const int n = ::poll(waited.data(), waited.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

// Waits until the descriptor is ready for `events` or has an error. Returns false if `limit` passes first.
bool ready(int descriptor, short events, std::chrono::milliseconds limit) {
  pollfd waited{.fd = descriptor, .events = events, .revents = 0};
  return any_ready(std::span(&waited, 1), NetClock::now() + limit);
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

Status gone(int error) { return device_lost(fmt::format("the connection broke: {}", error_text(error))); }

Result<Socket> connect_once(const addrinfo& at, std::chrono::milliseconds limit) {
  Socket socket = open_socket(at);
  if (socket.descriptor() < 0) return not_found(error_text(errno));
  int error = ::connect(socket.descriptor(), at.ai_addr, at.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    socklen_t size = sizeof(error);
    if (!ready(socket.descriptor(), POLLOUT, limit)) {
      error = ETIMEDOUT;
    } else {
      ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  if (error != 0) return not_found(error_text(error));
  send_at_once(socket);
  return socket;
}

}  // namespace

std::string NodeAddress::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

Result<NodeAddress> parse_node_address(std::string_view text) {
  const auto wrong = [&] {
    return invalid_argument(fmt::format(
        "\"{}\" is not accepted; accepted: HOST:PORT, or [ADDRESS]:PORT for IPv6, with a port from 1 to 65535", text));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return wrong();
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return wrong();
  }
  NodeAddress address{.host = std::string(host)};
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (host.empty() || error != std::errc() || end != port.data() + port.size() || address.port == 0) return wrong();
  return address;
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string Socket::peer() const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(descriptor_, any, &size) != 0 || ::getnameinfo(any, size, host.data(), host.size(), port.data(),
                                                                   port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "an unknown address";
  const std::string_view name = host.data();
  return name.find(':') == std::string_view::npos ? fmt::format("{}:{}", name, port.data())
                                                  : fmt::format("[{}]:{}", name, port.data());
}

Status Socket::send(std::span<const std::span<const std::byte>> parts, std::chrono::milliseconds limit) {
  std::vector<iovec> left;
  left.reserve(parts.size());
  for (const std::span<const std::byte> part : parts)
    if (!part.empty()) left.push_back({const_cast<std::byte*>(part.data()), part.size()});
  std::size_t first = 0;
  while (first < left.size()) {
    msghdr message{};
    message.msg_iov = &left[first];
    message.msg_iovlen = std::min<std::size_t>(left.size() - first, 64);
    const ssize_t sent = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (!would_block(errno)) return gone(errno);
      if (ready(descriptor_, POLLOUT, limit)) continue;
      return device_lost(fmt::format("it accepted no bytes for {} s", std::chrono::duration<double>(limit).count()));
    }
    for (auto taken = static_cast<std::size_t>(sent); first < left.size() && taken > 0;) {
      const std::size_t n = std::min(taken, left[first].iov_len);
      left[first].iov_base = static_cast<std::byte*>(left[first].iov_base) + n;
      left[first].iov_len -= n;
      taken -= n;
      if (left[first].iov_len == 0) ++first;
    }
  }
  return ok_status();
}

Result<std::size_t> Socket::receive(std::span<std::byte> to, std::chrono::milliseconds limit) {
  for (bool waited = false;;) {
    const ssize_t n = ::recv(descriptor_, to.data(), to.size(), 0);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0) return device_lost("the connection was closed");
    if (errno == EINTR) continue;
    if (!would_block(errno)) return gone(errno);
    if (waited || !ready(descriptor_, POLLIN, limit)) return std::size_t{0};
    waited = true;
  }
}

void Socket::end_sending() { ::shutdown(descriptor_, SHUT_WR); }
void Socket::shut_down() { ::shutdown(descriptor_, SHUT_RDWR); }

Result<Listener> Listener::open(const NodeAddress& address, NetClock::time_point deadline) {
  Result<Addresses> found = resolve(address);
  // Retries, because in a cluster the process's own name may become known only some seconds after the process has
  // started.
  while (!found.ok() && NetClock::now() < deadline) {
    std::this_thread::sleep_for(kPause);
    found = resolve(address);
  }
  if (!found.ok()) return invalid_argument(fmt::format("{}: {}", address.text(), found.status().message()));
  int error = 0;
  for (const addrinfo* at = found->get(); at != nullptr; at = at->ai_next) {
    Socket socket = open_socket(*at);
    const int on = 1;
    ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (::bind(socket.descriptor(), at->ai_addr, at->ai_addrlen) == 0 && ::listen(socket.descriptor(), 64) == 0)
      return Listener(std::move(socket));
    error = errno;
  }
  return invalid_argument(fmt::format("cannot listen at {}: {}", address.text(), error_text(error)));
}

Result<std::optional<Socket>> Listener::accept(NetClock::time_point deadline) {
  for (;;) {
    const int descriptor = ::accept4(socket_.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor >= 0) {
      Socket socket(descriptor);
      send_at_once(socket);
      return std::optional<Socket>(std::move(socket));
    }
    // Ignores errors of a connection that broke before it was accepted.
    if (!would_block(errno) && errno != EINTR && errno != ECONNABORTED && errno != EPROTO)
      return internal_error(fmt::format("connections cannot be accepted: {}", error_text(errno)));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - NetClock::now());
    if (left.count() <= 0 || !ready(socket_.descriptor(), POLLIN, left)) return std::optional<Socket>();
  }
}

void wait_to_read(std::span<const int> descriptors, NetClock::time_point deadline) {
  std::vector<pollfd> waited;
  waited.reserve(descriptors.size());
  for (const int descriptor : descriptors) waited.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
  (void)any_ready(waited, deadline);  // the caller's read finds out which one is ready
}

Result<Socket> connect_until(const NodeAddress& address, NetClock::time_point deadline) {
  constexpr std::chrono::seconds kOneTry(5);  // time limit for connecting to one address of a name
  std::string reason = "the time limit had passed before the first attempt";
  while (NetClock::now() < deadline) {
    const Result<Addresses> found = resolve(address);
    if (!found.ok()) reason = found.status().message();
    for (const addrinfo* at = found.ok() ? found->get() : nullptr; at != nullptr; at = at->ai_next) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - NetClock::now());
      Result<Socket> socket = connect_once(*at, std::min<std::chrono::milliseconds>(left, kOneTry));
      if (socket.ok()) return socket;
      reason = socket.status().message();
    }
    std::this_thread::sleep_for(kPause);
  }
  return not_found(fmt::format("{}: {}", address.text(), reason));
}

}  // namespace tessera
