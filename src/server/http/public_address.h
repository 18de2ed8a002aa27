// Which network addresses belong to the public internet. A server that fetches what a client names connects to no
// other: not to itself, its network, or the addresses that clouds answer their machines at.
#pragma once

#include <sys/socket.h>

namespace tessera {

// Of IPv4: all but the blocks of the special-purpose registry (RFC 6890: this network, private, shared, loopback,
// link-local, documentation, benchmarks), relays, multicast and reserved ones. Of IPv6: global unicast (2000::/3) but
// protocol assignments with Teredo, 6to4 and documentation; and addresses that stand for a public IPv4 one (mapped,
// 64:ff9b::/96). No other family.
bool is_public_address(const sockaddr& address);

// Whether it is an address of one of this machine's interfaces now, written as IPv4 or mapped into IPv6; a public
// address may be. True where the kernel does not tell its interfaces. Cost: one question to the kernel.
bool is_own_address(const sockaddr& address);

}  // namespace tessera
