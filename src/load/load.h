// Makes the requests of a load: when each arrives, how long its prompt and output are, and which prompts share a
// beginning. The requests are random, or they are the first requests of a recorded trace. This file uses no clock and
// no network.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

enum class Arrivals : std::uint8_t { kPoisson, kUniform };
// Which of the adapters a request names: any, all equally probable; each in turn; or the first ones most often.
enum class AdapterDraw : std::uint8_t { kUniform, kInTurn, kSkewed };
// SGLang's names of them, in the same order.
inline constexpr std::array<std::string_view, 3> kAdapterDraws = {"uniform", "distinct", "skewed"};

struct LoadOptions {
  std::string trace{};  // a file in one of the formats of trace.h; "": random requests
  std::int64_t num_prompts = 100;
  std::uint64_t seed = 0;
  std::vector<std::string> adapters{};  // names of adapters; each request uses one. Empty: requests use the model alone
  AdapterDraw adapter_draw = AdapterDraw::kUniform;
  double zipf_exponent = 1.5;  // kSkewed: adapter i, counted from 1, has a probability in proportion to 1 / i^exponent
  // Used only for random requests:
  Arrivals arrivals = Arrivals::kPoisson;
  std::int64_t input_tokens = 512;
  std::int64_t output_tokens = 128;
  double range_ratio = 1;  // lengths are drawn from [ratio · length, length]
};

struct LoadRequest {
  double arrival_s = 0;  // seconds after the first request
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::string adapter{};  // the name of its adapter; "": none
  // The ids of the prompt's blocks of kBlockTokens tokens, if the trace has such ids. Equal ids mean equal tokens.
  std::vector<std::int64_t> blocks{};
};

inline constexpr std::int64_t kBlockTokens = 512;  // Mooncake's block size

struct Load {
  std::vector<LoadRequest> requests;  // in the order of their arrivals
  bool recorded = false;              // arrivals come from a trace; if not, one request per second arrives on average
};

// Makes the load. If a trace has fewer than num_prompts requests, all are used. Errors name the trace's file and line.
Result<Load> make_load(const LoadOptions& options);

// Returns the time in seconds at which each request is sent if they come at `per_second` on average; infinity sends all
// at once. The arrivals of a trace are all scaled by one factor. Returns kInvalidArgument if all arrivals of a trace
// are at one moment, because then they have no rate.
Result<std::vector<double>> arrivals_at(const Load& load, double per_second);

// Shortens prompts so that prompt and output fit into `context` tokens. Also shortens an output that leaves no room for
// a prompt. Returns the number of shortened requests.
std::int64_t clip_to_context(Load& load, std::int64_t context);

// Makes the token ids of prompts, all below vocab_size. The ids depend only on (seed, run, index), or on (seed, run,
// block) if the request has blocks. Prompts of different runs have nothing in common, so no run finds another's prompts
// in a prefix cache.
struct PromptSource {
  std::uint64_t seed = 0;
  std::uint64_t run = 0;
  std::int64_t vocab_size = 0;
};
std::vector<std::int64_t> prompt_ids(const LoadRequest& request, std::size_t index, const PromptSource& source);

}  // namespace tessera
