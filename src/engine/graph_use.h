// How one request's forwards ran (A3): those that were dispatched alike are one entry.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/runner/forward_counters.h"

namespace tessera {

// By all rows of a forward, whosever they are.
enum class ForwardPhase : std::uint8_t { kPrefill, kDecode, kMixed };
std::string_view forward_phase_name(ForwardPhase phase);  // "prefill" "decode" "mixed"

struct GraphUse {
  ForwardPhase phase = ForwardPhase::kPrefill;
  ForwardKey how{};
  // Tokens are the request's own; the padding is the forwards', whoever shared them.
  ForwardCount count{};
};

// Counts a forward that had `tokens` of the request. Entries are in the order of their first forward.
void add_graph_use(std::vector<GraphUse>& uses, ForwardPhase phase, const Decision& decision, std::int64_t tokens);

}  // namespace tessera
