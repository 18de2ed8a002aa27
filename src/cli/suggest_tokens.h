// `explain --suggest-tokens FILE`: the sizes of prefill graphs that fit forwards as they were, read from a trace
// of requests, which the scheduler is run on, or from a server's metrics, which count forwards by their tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/piecewise/auto_ladder.h"

namespace tessera::cli {

struct SeenForwards {
  // The forwards that do more than decode.
  TokenWeights weights;
  std::string how;  // they are known, for people
};

struct SuggestedLadder {
  std::vector<std::int64_t> sizes;
  PaddingWaste waste;
};

struct TokenSuggestion {
  std::string file;
  std::string how;
  double forwards = 0;
  std::int64_t p50 = 0;  // tokens
  std::int64_t p90 = 0;
  std::int64_t p99 = 0;
  bool costs_measured = false;  // else waste in time is by prior_token_cost
  SuggestedLadder present;
  SuggestedLadder proposed;
};

// Forwards of a trace (bench_trace.h) or a saved /metrics text, told apart by what they begin with. Errors begin with
// the flag and name file and line.
Result<SeenForwards> read_forwards(const std::string& path, const EnginePlan& plan);

// Suggests as many sizes as there would be now, which --cuda-graph-memory-budget may have limited, but no more than
// serve 90 % of the forwards exactly. Time is by the costs in the profile cache, where it has them.
Result<TokenSuggestion> suggest_tokens(const std::string& path, const EngineOptions& options);

Json to_json(const TokenSuggestion& suggestion);
std::string to_text(const TokenSuggestion& suggestion);

}  // namespace tessera::cli
