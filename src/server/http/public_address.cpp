#include "tessera/server/http/public_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

namespace tessera {
namespace {

struct Block4 {
  std::uint32_t first;
  int bits;
};

constexpr std::uint32_t ip4(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  return a << 24 | b << 16 | c << 8 | d;
}

// The blocks of IANA's IPv4 special-purpose registry, and multicast.
constexpr Block4 kSpecial4[] = {
    {ip4(0, 0, 0, 0), 8},        // this network
    {ip4(10, 0, 0, 0), 8},       // private
    {ip4(100, 64, 0, 0), 10},    // shared by carriers (NAT)
    {ip4(127, 0, 0, 0), 8},      // loopback
    {ip4(169, 254, 0, 0), 16},   // link-local
    {ip4(172, 16, 0, 0), 12},    // private
    {ip4(192, 0, 0, 0), 24},     // protocol assignments
    {ip4(192, 0, 2, 0), 24},     // documentation
    {ip4(192, 31, 196, 0), 24},  // AS112
    {ip4(192, 52, 193, 0), 24},  // AMT
    {ip4(192, 88, 99, 0), 24},   // 6to4 relays
    {ip4(192, 168, 0, 0), 16},   // private
    {ip4(192, 175, 48, 0), 24},  // AS112
    {ip4(198, 18, 0, 0), 15},    // benchmarks
    {ip4(198, 51, 100, 0), 24},  // documentation
    {ip4(203, 0, 113, 0), 24},   // documentation
    {ip4(224, 0, 0, 0), 4},      // multicast
    {ip4(240, 0, 0, 0), 4},      // reserved, broadcast
};

bool is_public(std::uint32_t address) {
  return std::none_of(std::begin(kSpecial4), std::end(kSpecial4),
                      [&](const Block4& block) { return ((address ^ block.first) >> (32 - block.bits)) == 0; });
}

using Bytes6 = std::array<std::uint8_t, 16>;

struct Block6 {
  std::array<std::uint8_t, 12> first;
  int bits;
};

constexpr Block6 kMapped = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96};
constexpr Block6 kNat64 = {{0, 0x64, 0xff, 0x9b}, 96};
constexpr Block6 kGlobal = {{0x20}, 3};
// The blocks within kGlobal that are not public.
constexpr Block6 kSpecial6[] = {
    {{0x20, 0x01}, 23},                    // protocol assignments, including Teredo and ORCHID
    {{0x20, 0x01, 0x0d, 0xb8}, 32},        // documentation
    {{0x20, 0x02}, 16},                    // 6to4: contains any IPv4 address
    {{0x26, 0x20, 0, 0x4f, 0x80, 0}, 48},  // AS112
    {{0x3f, 0xff}, 20},                    // documentation
};

bool contains(const Block6& block, const Bytes6& address) {
  for (int bit = 0; bit < block.bits; ++bit) {
    const auto at = static_cast<std::size_t>(bit / 8);
    if (((block.first[at] ^ address[at]) >> (7 - bit % 8) & 1) != 0) return false;
  }
  return true;
}

bool is_public(const Bytes6& address) {
  if (contains(kMapped, address) || contains(kNat64, address))
    return is_public(ip4(address[12], address[13], address[14], address[15]));
  return contains(kGlobal, address) && std::none_of(std::begin(kSpecial6), std::end(kSpecial6),
                                                    [&](const Block6& block) { return contains(block, address); });
}

// Returns the bytes of an IPv6 address, or of an IPv4 address mapped into IPv6. Returns nothing for other families.
std::optional<Bytes6> mapped_bytes(const sockaddr& address) {
  Bytes6 bytes{};
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    std::copy(kMapped.first.begin(), kMapped.first.end(), bytes.begin());
    std::memcpy(bytes.data() + kMapped.first.size(), &in.sin_addr, sizeof in.sin_addr);
    return bytes;
  }
  if (address.sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 in{};
  std::memcpy(&in, &address, sizeof in);
  std::memcpy(bytes.data(), &in.sin6_addr, bytes.size());
  return bytes;
}

}  // namespace

bool is_own_address(const sockaddr& address) {
  const std::optional<Bytes6> wanted = mapped_bytes(address);
  ifaddrs* all = nullptr;
  if (!wanted || ::getifaddrs(&all) != 0) return true;
  bool found = false;
  for (const ifaddrs* one = all; one != nullptr && !found; one = one->ifa_next)
    found = one->ifa_addr != nullptr && mapped_bytes(*one->ifa_addr) == wanted;
  ::freeifaddrs(all);
  return found;
}

bool is_public_address(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    return is_public(ntohl(in.sin_addr.s_addr));
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    Bytes6 bytes{};
    std::memcpy(bytes.data(), &in.sin6_addr, bytes.size());
    return is_public(bytes);
  }
  return false;
}

}  // namespace tessera
