// Finds a port of 127.0.0.1 at which nobody listens, for tests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

namespace tessera::testing {

inline std::uint16_t free_port() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const bool bound = ::bind(descriptor, any, size) == 0 && ::getsockname(descriptor, any, &size) == 0;
  ::close(descriptor);
  return bound ? ntohs(address.sin_port) : std::uint16_t{0};
}

}  // namespace tessera::testing
