// Counts how one request's forwards were dispatched, with one entry for each phase and kind of dispatch.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/runner/forward_counters.h"

namespace tessera {

// The kind of a forward, which depends on the rows of all its requests.
enum class ForwardPhase : std::uint8_t { kPrefill, kDecode, kMixed };
std::string_view forward_phase_name(ForwardPhase phase);  // "prefill", "decode" or "mixed"

struct GraphUse {
  ForwardPhase phase = ForwardPhase::kPrefill;
  ForwardKey how{};
  // The tokens in `count` are only this request's tokens. The padding in `count` is the whole padding of the counted
  // forwards, even if they also compute tokens of other requests.
  ForwardCount count{};
};

// Counts a forward that computed `tokens` tokens of the request. Entries are in the order in which their first forwards
// ran.
void add_graph_use(std::vector<GraphUse>& uses, ForwardPhase phase, const Decision& decision, std::int64_t tokens);

}  // namespace tessera
