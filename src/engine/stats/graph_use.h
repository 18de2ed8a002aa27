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
  // The counted tokens are only this request's tokens. The counted padding is the padding of the whole forward, which
  // other requests may share.
  ForwardCount count{};
};

// Counts a forward that had `tokens` of the request's tokens. Entries are in the order of their first forward.
void add_graph_use(std::vector<GraphUse>& uses, ForwardPhase phase, const Decision& decision, std::int64_t tokens);

}  // namespace tessera
