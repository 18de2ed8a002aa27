// Makes the load of coding agents: sessions of many turns, each of which sends the whole conversation again. All
// sessions share a system prompt. A turn's prompt is the previous prompt, the output of the previous turn, and new
// tokens, such as the result of a tool. Some sessions have a sub-agent and a branch. The sub-agent has a conversation
// of its own, which begins with the system prompt. The session waits until its sub-agent has ended. The branch is one
// request that is sent when the sub-agent begins. The branch continues the session's conversation, and no request
// continues the branch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/load/latency.h"
#include "tessera/load/load.h"

namespace tessera {

// Makes options.agents.sessions sessions. The sessions' first requests arrive as options.arrivals says. Requests of one
// session are neighbours in the load. LoadRequest::after names the request that must end first. Returns
// kInvalidArgument if the context has no room for the turns, or if all prompts together may have more than about
// kMostParts parts.
// Preconditions: there is a session, and a session has at least two turns.
Result<Load> agent_load(const LoadOptions& options);
inline constexpr std::int64_t kMostParts = 1 << 24;  // maximum number of PromptParts in a load; each takes 32 bytes

// Lowers known_tokens where a prompt continues an output whose ids the server did not report. In place of these ids the
// prompt has random tokens, which no cache can have. records[i] belongs to load.requests[i].
void forget_unreported_outputs(Load& load, std::span<const RequestRecord> records);

// The latencies of requests with a prompt of at least `least_tokens` and fewer than `end_tokens` tokens.
struct PromptLatency {
  std::int64_t least_tokens = 0;
  std::int64_t end_tokens = 0;
  std::int64_t requests = 0;  // requests that succeeded
  double new_tokens = 0;      // the mean number of tokens that are not in LoadRequest::known_tokens
  Distribution ttft{};        // in milliseconds
};
// Divides the requests of a load into `ranges` equal ranges of prompt lengths, from 0 to the longest prompt. records[i]
// belongs to load.requests[i]. Ranges without requests are left out.
std::vector<PromptLatency> prompt_latencies(const Load& load, std::span<const RequestRecord> records, int ranges);

}  // namespace tessera
