// What a server says about its speculative decoding, before and after a load.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/load/client.h"

namespace tessera {

// Counters since the server's start.
struct ServedDrafts {
  std::int64_t steps = 0;    // forwards of a request that had drafts
  std::int64_t drafted = 0;  // tokens
  std::int64_t kept = 0;     // tokens among them that were output
  // [positions]: the same by position behind the last token, from the first draft on.
  std::vector<std::int64_t> drafted_at{};
  std::vector<std::int64_t> kept_at{};

  // Returns the average number of tokens that a forward with drafts gave, its own included; 0 without such a forward.
  double mean_length() const { return steps == 0 ? 0 : 1 + static_cast<double>(kept) / static_cast<double>(steps); }
  // Returns what was counted since `earlier`.
  ServedDrafts since(const ServedDrafts& earlier) const;
};

// Reads the counters from the body of Tessera's /get_server_info; nothing if it has none, or others.
std::optional<ServedDrafts> drafts_of(const Json& server_info);
// Asks the server. Nothing if it is no server that tells.
std::optional<ServedDrafts> ask_drafts(LoadClient& client);

}  // namespace tessera
