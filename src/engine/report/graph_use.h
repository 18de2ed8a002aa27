// How one request's forwards ran: those that were dispatched alike share an entry.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/runner/forward_counters.h"

namespace tessera {

// Of a forward, by the rows of all of its requests.
enum class ForwardPhase : std::uint8_t { kPrefill, kDecode, kMixed };
std::string_view forward_phase_name(ForwardPhase phase);  // "prefill" "decode" "mixed"

struct GraphUse {
  ForwardPhase phase = ForwardPhase::kPrefill;
  ForwardKey how{};
  // Tokens are the request's own; padding is that of the forwards, which it may share with other requests.
  ForwardCount count{};
};

// Counts a forward that had `tokens` of the request. Entries are in the order of their first forward.
void add_graph_use(std::vector<GraphUse>& uses, ForwardPhase phase, const Decision& decision, std::int64_t tokens);

}  // namespace tessera
