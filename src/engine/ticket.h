// Identifies a request before an engine has given it an id.
#pragma once

#include <cstdint>

namespace tessera {

// The caller chooses the ticket. It is unique among the requests that have not ended.
using Ticket = std::uint64_t;

}  // namespace tessera
