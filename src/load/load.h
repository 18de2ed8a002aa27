// The requests of a load: when each arrives, how long its prompt and output are, and which prompts begin alike. Random,
// or the first ones of a recorded trace. No clock and no network here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

enum class Arrivals : std::uint8_t { kPoisson, kUniform };

struct LoadOptions {
  std::string trace{};  // a file in one of the forms of trace.h; empty: random requests
  std::int64_t num_prompts = 100;
  std::uint64_t seed = 0;
  // For random requests:
  Arrivals arrivals = Arrivals::kPoisson;
  std::int64_t input_tokens = 512;
  std::int64_t output_tokens = 128;
  double range_ratio = 1;  // lengths are drawn from [ratio · length, length]
};

struct LoadRequest {
  double arrival_s = 0;  // from the first request on
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  // The content of each kBlockTokens of the prompt, from a trace that tells: equal numbers are equal tokens.
  std::vector<std::int64_t> blocks{};
};

inline constexpr std::int64_t kBlockTokens = 512;  // Mooncake's

struct Load {
  std::vector<LoadRequest> requests;  // by arrival
  bool recorded = false;              // arrivals are a trace's; else they come at one per second
};

// Errors name the trace's file and line. A trace that is shorter than num_prompts gives what it has.
Result<Load> make_load(const LoadOptions& options);

// When each request is sent, if they come at `per_second` on average: infinity sends all at once. Arrivals of a trace
// are stretched as a whole. kInvalidArgument where all of them came in one moment, which has no rate.
Result<std::vector<double>> arrivals_at(const Load& load, double per_second);

// Shortens prompts, and outputs that leave no room for one, so that both fit `context` tokens. Returns how many
// requests it shortened.
std::int64_t clip_to_context(Load& load, std::int64_t context);

// Token ids of one prompt, all below vocab_size: a function of (seed, run, index), and where the request has blocks of
// (seed, run, block). Prompts of different runs share nothing, so that no run finds another's in a prefix cache.
struct PromptSource {
  std::uint64_t seed = 0;
  std::uint64_t run = 0;
  std::int64_t vocab_size = 0;
};
std::vector<std::int64_t> prompt_ids(const LoadRequest& request, std::size_t index, const PromptSource& source);

}  // namespace tessera
