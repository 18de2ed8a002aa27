// Implements `explain --suggest-tokens FILE`, which suggests prefill graph sizes that fit recorded forwards. The
// forwards come from a trace of requests, on which the scheduler is simulated, or from a server's metrics, which count
// forwards by their tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/piecewise/auto_ladder.h"

namespace tessera::cli {

struct SeenForwards {
  // [tokens]: number of forwards with this many tokens. Pure decodes are left out.
  TokenWeights weights;
  std::string how;  // describes for the user where the numbers come from
};

struct SuggestedLadder {
  std::vector<std::int64_t> sizes;
  PaddingWaste waste;
};

struct TokenSuggestion {
  std::string file;
  std::string how;
  double forwards = 0;
  std::int64_t p50 = 0;  // percentiles of the number of tokens in a forward
  std::int64_t p90 = 0;
  std::int64_t p99 = 0;
  bool costs_measured = false;  // false: prior_token_cost estimates the wasted time
  SuggestedLadder present;
  SuggestedLadder proposed;
};

// Reads forwards from a trace (load/trace.h) or a saved /metrics text. The first bytes of the file tell which of the
// two it is. An error's text begins with the flag's name, and names the file and the line.
Result<SeenForwards> read_forwards(const std::string& path, const EnginePlan& plan);

// Suggests at most as many sizes as the plan for `options` has. --cuda-graph-memory-budget may reduce the number of the
// plan's sizes. If fewer sizes already let 90 % of the forwards run without padding, suggests only these. Computes
// times from measured costs in the profile cache, if there are any.
Result<TokenSuggestion> suggest_tokens(const std::string& path, const EngineOptions& options);

Json to_json(const TokenSuggestion& suggestion);
std::string to_text(const TokenSuggestion& suggestion);

}  // namespace tessera::cli
