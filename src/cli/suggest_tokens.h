// `explain --suggest-tokens FILE`: suggests sizes of prefill graphs that fit recorded forwards. The forwards come from
// a trace of requests, by running the scheduler on it, or from a server's metrics, which count forwards by their
// tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/start/engine_plan.h"
#include "tessera/piecewise/auto_ladder.h"

namespace tessera::cli {

struct SeenForwards {
  // The forwards that compute more than decode tokens.
  TokenWeights weights;
  std::string how;  // says how the forwards are known, for people
};

struct SuggestedLadder {
  std::vector<std::int64_t> sizes;
  PaddingWaste waste;
};

struct TokenSuggestion {
  std::string file;
  std::string how;
  double forwards = 0;
  std::int64_t p50 = 0;  // in tokens
  std::int64_t p90 = 0;
  std::int64_t p99 = 0;
  bool costs_measured = false;  // false: the waste in time is estimated by prior_token_cost
  SuggestedLadder present;
  SuggestedLadder proposed;
};

// Reads forwards from a trace (bench_trace.h) or a saved /metrics text; the beginning of the file tells which. Errors
// begin with the flag and name file and line.
Result<SeenForwards> read_forwards(const std::string& path, const EnginePlan& plan);

// Suggests as many sizes as the engine would have now (--cuda-graph-memory-budget may have limited them), but no more
// than are needed for 90 % of the forwards to have a size of exactly their tokens. Times use the costs in the profile
// cache, if there are any.
Result<TokenSuggestion> suggest_tokens(const std::string& path, const EngineOptions& options);

Json to_json(const TokenSuggestion& suggestion);
std::string to_text(const TokenSuggestion& suggestion);

}  // namespace tessera::cli
