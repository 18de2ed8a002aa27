// Reads a server's counters of speculative decoding. The counts of a load are the counters after the load minus the
// counters before the load.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/load/client.h"

namespace tessera {

// Counters since the server's start.
struct ServedDrafts {
  std::int64_t steps = 0;    // forwards with draft tokens, counted once for each request
  std::int64_t drafted = 0;  // draft tokens
  std::int64_t kept = 0;     // draft tokens that were accepted and output
  // [positions]: for each position that a draft can have in its step, how many tokens were drafted and how many were
  // kept. The first draft of a step has index 0.
  std::vector<std::int64_t> drafted_at{};
  std::vector<std::int64_t> kept_at{};

  // Returns the average number of tokens that a forward with drafts outputs for a request: the accepted drafts, and the
  // one token that a forward without drafts outputs as well. Returns 0 if no forward had drafts.
  double mean_length() const { return steps == 0 ? 0 : 1 + static_cast<double>(kept) / static_cast<double>(steps); }
  // Returns what was counted since `earlier`.
  ServedDrafts since(const ServedDrafts& earlier) const;
};

// Reads the counters from the body of Tessera's /get_server_info. Returns nothing if the body has none, or has them in
// an unknown form.
std::optional<ServedDrafts> drafts_of(const Json& server_info);
// Asks the server for its counters. Returns nothing if it does not report them.
std::optional<ServedDrafts> ask_drafts(LoadClient& client);

}  // namespace tessera
