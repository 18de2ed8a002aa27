// Makes the requests of a load: when each arrives, how long its prompt and output are, and which prompts share a
// beginning. The requests are random, the first requests of a recorded trace, or sessions of agents. This file uses no
// clock and no network.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/load/latency.h"

namespace tessera {

enum class Arrivals : std::uint8_t { kPoisson, kUniform };
// How a request's adapter is chosen. With kUniform it is random, and all adapters are equally probable. With kInTurn
// the requests use the adapters one after another. With kSkewed it is random, and adapters earlier in the list are more
// probable.
enum class AdapterDraw : std::uint8_t { kUniform, kInTurn, kSkewed };
// SGLang's names of the enumerators of AdapterDraw, in the same order.
inline constexpr std::array<std::string_view, 3> kAdapterDraws = {"uniform", "distinct", "skewed"};

// Sessions of coding agents (agents.h).
struct AgentOptions {
  std::int64_t sessions = 0;          // 0: the load has no agents
  std::int64_t turns = 43;            // turns per session; vLLM's figure for recorded agents (vllm#57103)
  std::int64_t first_tokens = 16384;  // length of a session's first prompt; three quarters are the system prompt
  std::int64_t context = 120000;      // tokens of a session's last prompt
  double tool_seconds = 0;            // seconds from the end of an answer to the next turn
  bool equal_results = false;         // all results of tools have the same length; if not, lengths are random
};

struct LoadOptions {
  std::string trace{};  // a file in one of the formats of trace.h; "": random requests
  std::int64_t num_prompts = 100;
  std::uint64_t seed = 0;
  std::vector<std::string> adapters{};  // names of adapters; each request uses one. Empty: requests use the model alone
  AdapterDraw adapter_draw = AdapterDraw::kUniform;
  double zipf_exponent = 1.5;  // kSkewed: adapter i, counted from 1, has a probability in proportion to 1 / i^exponent
  AgentOptions agents{};       // if it has sessions, they replace the random requests
  // The members below are used only without a trace.
  Arrivals arrivals = Arrivals::kPoisson;
  std::int64_t input_tokens = 512;   // the longest random prompt
  std::int64_t output_tokens = 128;  // the longest output
  double range_ratio = 1;            // the lengths of random requests are drawn from [ratio · length, length]
};

// A part of a prompt, which is random tokens or the output of another request.
struct PromptPart {
  std::int64_t tokens = 0;
  std::uint64_t text = 0;  // equal numbers mean equal random tokens
  // The index, in the load, of the request whose output is this part. If the server does not report the ids of the
  // output, random tokens take the place of the missing tokens.
  std::optional<std::size_t> output_of{};
};

struct LoadRequest {
  double arrival_s = 0;                // seconds after the first request, or after the end of the request `after`
  std::optional<std::size_t> after{};  // index of the request that must end before this request is sent
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::string adapter{};  // the name of the request's adapter; "": none
  // The ids of the prompt's blocks of kBlockTokens tokens, if the trace has such ids. Equal ids mean equal tokens.
  std::vector<std::int64_t> blocks{};
  std::vector<PromptPart> parts{};  // the whole prompt, if it consists of parts
  // The number of tokens at the beginning of the prompt that an unlimited prefix cache would hold. It is 0 if the load
  // has no agents. A turn of a conversation continues the previous prompt and its output, and all their tokens count.
  // The first request of a conversation shares only the system prompt. The first request of the load and the first
  // request with each adapter share nothing.
  std::int64_t known_tokens = 0;
};

inline constexpr std::int64_t kBlockTokens = 512;  // Mooncake's block size

struct Load {
  std::vector<LoadRequest> requests;  // in the order of arrival; with agents, session by session
  // Whether the arrivals come from a trace. If they do not, one request, or one session of agents, arrives per second
  // on average.
  bool recorded = false;
};

// Makes the load. If a trace has fewer than num_prompts requests, uses all requests of the trace. Errors name the
// trace's file and line.
Result<Load> make_load(const LoadOptions& options);

// Returns the time in seconds at which each request is sent, if `per_second` requests arrive per second on average.
// Infinity sends all requests at once. The arrivals of a trace are all scaled by one factor. If a request has `after`,
// its element is the delay after the end of request `after`. The rate does not change this delay. Returns
// kInvalidArgument if all arrivals of a trace are at one moment, because no factor gives them a rate.
Result<std::vector<double>> arrivals_at(const Load& load, double per_second);

// Shortens prompts so that prompt and output fit into `context` tokens. Also shortens an output that leaves no room for
// a prompt. Returns the number of shortened requests.
std::int64_t clip_to_context(Load& load, std::int64_t context);

// The inputs of prompt_ids() that are the same for all requests of a run. prompt_ids() makes a prompt's token ids, all
// below vocab_size. The ids depend on `seed` and `run`, and on one of the following. If the request has blocks, they
// depend on the blocks' ids. If it has parts, they depend on PromptPart::text and on the outputs in `records`.
// Otherwise they depend on the request's index. Prompts of different runs have nothing in common, so no run finds the
// prompts of another run in a prefix cache.
struct PromptSource {
  std::uint64_t seed = 0;
  std::uint64_t run = 0;
  std::int64_t vocab_size = 0;
};
std::vector<std::int64_t> prompt_ids(const LoadRequest& request, std::size_t index, const PromptSource& source,
                                     std::span<const RequestRecord> records = {});

}  // namespace tessera
