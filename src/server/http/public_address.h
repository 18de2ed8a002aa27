// Tells which network addresses belong to the public internet. A server that fetches clients' URLs may connect only to
// these, and not to itself, its own network, or the metadata addresses of clouds.
#pragma once

#include <sys/socket.h>

namespace tessera {

// Returns whether an address is public. Public IPv4 addresses are all addresses except multicast and the blocks of
// IANA's special-purpose registry (private, shared, loopback, link-local, documentation, reserved and others). Public
// IPv6 addresses are all global unicast addresses (2000::/3) except protocol assignments (which include Teredo), 6to4,
// AS112 and documentation. An IPv6 address that stands for an IPv4 address (mapped, 64:ff9b::/96) is public if the IPv4
// address is. Addresses of other families are not public.
bool is_public_address(const sockaddr& address);

// Returns whether the address now belongs to an interface of this machine. An interface's address may be public. IPv4
// addresses may also be given in their IPv6-mapped form. Returns true for addresses of other families, and if the
// kernel does not list its interfaces. Cost: one query of the kernel.
bool is_own_address(const sockaddr& address);

}  // namespace tessera
