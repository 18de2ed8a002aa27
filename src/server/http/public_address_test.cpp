// Catches: an address of the server's own machine, network or cloud to which a client could make the server connect,
// including IPv4 addresses in any of IPv6's notations; and a public address that is refused.
#include "tessera/server/http/public_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstring>
#include <string>

namespace tessera {
namespace {

sockaddr_storage address_of(const std::string& text) {
  sockaddr_storage storage{};
  auto& in = reinterpret_cast<sockaddr_in&>(storage);
  auto& in6 = reinterpret_cast<sockaddr_in6&>(storage);
  const bool is_ip6 = text.find(':') != std::string::npos;
  storage.ss_family = is_ip6 ? AF_INET6 : AF_INET;
  void* bytes = is_ip6 ? static_cast<void*>(&in6.sin6_addr) : static_cast<void*>(&in.sin_addr);
  EXPECT_EQ(::inet_pton(storage.ss_family, text.c_str(), bytes), 1) << text;
  return storage;
}

bool is_public(const std::string& text) {
  const sockaddr_storage storage = address_of(text);
  return is_public_address(reinterpret_cast<const sockaddr&>(storage));
}

bool is_own(const std::string& text) {
  const sockaddr_storage storage = address_of(text);
  return is_own_address(reinterpret_cast<const sockaddr&>(storage));
}

TEST(PublicAddress, AddressesOfTheInternetArePublic) {
  for (const char* text :
       {"1.1.1.1",        "8.8.8.8",         "9.255.255.255",   "11.0.0.0",        "100.63.255.255",
        "100.128.0.0",    "126.255.255.255", "128.0.0.0",       "169.253.255.255", "169.255.0.0",
        "172.15.255.255", "172.32.0.0",      "192.0.1.0",       "192.167.255.255", "192.169.0.0",
        "198.17.255.255", "198.20.0.0",      "223.255.255.255", "2606:4700::1111", "2a00:1450:4001:80b::200e",
        "2001:200::1",    "::ffff:1.1.1.1",  "64:ff9b::1.1.1.1"}) {
    EXPECT_TRUE(is_public(text)) << text;
  }
}

TEST(PublicAddress, SpecialPurposeAddressesAreNotPublic) {
  for (const char* text : {"0.0.0.0",
                           "0.255.255.255",
                           "10.0.0.0",
                           "10.255.255.255",
                           "100.64.0.0",
                           "100.127.255.255",
                           "127.0.0.1",
                           "127.255.255.255",
                           "169.254.0.0",
                           "169.254.169.254",
                           "172.16.0.0",
                           "172.31.255.255",
                           "192.0.0.0",
                           "192.0.0.192",
                           "192.0.2.1",
                           "192.88.99.1",
                           "192.168.0.0",
                           "192.168.255.255",
                           "198.18.0.0",
                           "198.19.255.255",
                           "198.51.100.7",
                           "203.0.113.7",
                           "224.0.0.1",
                           "239.255.255.255",
                           "240.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "::7f00:1",
                           "::ffff:127.0.0.1",
                           "::ffff:10.1.2.3",
                           "::ffff:0.0.0.0",
                           "64:ff9b::a9fe:a9fe",
                           "64:ff9b:1::1",
                           "100::1",
                           "fc00::1",
                           "fd12:3456::1",
                           "fe80::1",
                           "febf::1",
                           "fec0::1",
                           "ff02::1",
                           "2001::1",
                           "2001:10::1",
                           "2001:db8::1",
                           "2002:7f00:1::1",
                           "3fff::1",
                           "4000::1",
                           "5f00::1"}) {
    EXPECT_FALSE(is_public(text)) << text;
  }
}

TEST(PublicAddress, OtherFamiliesAreNotPublic) {
  sockaddr_un local{.sun_family = AF_UNIX, .sun_path = "/run/x"};
  EXPECT_FALSE(is_public_address(reinterpret_cast<const sockaddr&>(local)));
}

// The address of an interface is the machine's own, even if it is public. It is refused, because services that listen
// there may be meant only for the machine itself.
TEST(PublicAddress, AddressesOfInterfacesAreTheMachinesOwn) {
  EXPECT_TRUE(is_own("127.0.0.1"));
  EXPECT_TRUE(is_own("::ffff:127.0.0.1"));
  ifaddrs* all = nullptr;
  ASSERT_EQ(::getifaddrs(&all), 0);
  int found = 0;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6))
      continue;
    EXPECT_TRUE(is_own_address(*one->ifa_addr)) << one->ifa_name;
    ++found;
  }
  ::freeifaddrs(all);
  EXPECT_GT(found, 0);
}

TEST(PublicAddress, AddressesElsewhereAreNotOwn) {
  for (const char* text : {"192.0.2.1", "1.1.1.1", "::ffff:1.1.1.1", "2001:db8::1"}) EXPECT_FALSE(is_own(text)) << text;
}

TEST(PublicAddress, OtherFamiliesCountAsOwn) {
  sockaddr_storage storage{};
  storage.ss_family = AF_UNIX;
  EXPECT_TRUE(is_own_address(reinterpret_cast<const sockaddr&>(storage)));
}

}  // namespace
}  // namespace tessera
