// Prefill sizes by what they cost (B3, B10): which graphs save the most padded time, for forwards of any token count or
// of those that were seen. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tessera {

// How long a forward of so many tokens takes, in any unit; not falling.
using TokenCost = std::function<double(std::int64_t tokens)>;

// Where nothing was measured, in tokens' worth: each token, and the weights that are read once, which on an H200 take
// as long as some 250 tokens of Llama-3-8B and 600 of Qwen3-0.6B, on a CPU fewer (docs/benchmarks.md). A small value
// makes much of padding: a size too many costs less than one that is missing.
double prior_token_cost(std::int64_t tokens);

// [tokens]: how often a forward has so many, in any unit.
using TokenWeights = std::vector<double>;
TokenWeights uniform_weights(std::int64_t first, std::int64_t last);

// Of forwards that are padded to the ladder's next size, as shares of all that is computed. Forwards above the largest
// size are left out.
struct PaddingWaste {
  double tokens = 0;
  double time = 0;
  double exact = 0;   // share of the forwards that have just a captured size
  double served = 0;  // share of the forwards that are not above the largest size
};
PaddingWaste padding_waste(std::span<const std::int64_t> sizes, const TokenCost& cost, const TokenWeights& weights);

struct LadderGoal {
  // No further sizes once padding takes less of the time. Where nothing was measured costs may rise faster than
  // prior_token_cost says: these 2 % are 2.5 % by the times of Qwen3-0.6B on an H200.
  double time_waste = 0.02;
  double exact = 1;  // or once so many forwards have a size of their own
  std::size_t most_sizes = 96;
  std::int64_t step = 16;  // sizes are multiples of it
};

// Adds sizes, that which saves most first, until a goal is reached or no size saves anything.
void add_sizes(std::vector<std::int64_t>& sizes, const TokenCost& cost, const TokenWeights& weights,
               const LadderGoal& goal);

// `--cuda-graph-schedule auto`: the default ladder without sizes that cost as much as the next one, and with sizes
// between where padding takes most time, for forwards of 33 to max_tokens tokens alike. 96 sizes, or as many as the
// default ladder has.
std::vector<std::int64_t> auto_ladder(std::int64_t max_tokens, const TokenCost& cost);

// The ladder for forwards as they were seen: `largest`, at least 1, and the sizes that save most.
std::vector<std::int64_t> fitted_ladder(std::int64_t largest, const TokenCost& cost, const TokenWeights& weights,
                                        const LadderGoal& goal);

}  // namespace tessera
