// Prefill sizes by what they cost: which graphs save the most padded time, for forwards of any token count or
// of those that were seen. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tessera {

// How long a forward of `tokens` tokens takes, in any unit. It does not fall as the tokens grow.
using TokenCost = std::function<double(std::int64_t tokens)>;

// The cost where nothing was measured, in units of one token's: one for each token, and a constant for reading the
// weights once. On an H200 the weights take as long as about 250 tokens of Llama-3-8B or 600 of Qwen3-0.6B, on a CPU as
// fewer (docs/benchmarks.md). The constant is at the low end, which makes padding look expensive: a size too many costs
// less than a missing one.
double prior_token_cost(std::int64_t tokens);

// [tokens]: how often a forward has that many tokens, in any unit.
using TokenWeights = std::vector<double>;
TokenWeights uniform_weights(std::int64_t first, std::int64_t last);

// What is computed for padding, as shares of everything computed, where forwards are padded to the ladder's next size.
// Forwards above the largest size are not counted.
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
  double exact = 1;  // or once this share of the forwards has a size of its own
  std::size_t most_sizes = 96;
  std::int64_t step = 16;  // sizes are multiples of it
};

// Adds sizes, that which saves most first, until a goal is reached or no size saves anything.
void add_sizes(std::vector<std::int64_t>& sizes, const TokenCost& cost, const TokenWeights& weights,
               const LadderGoal& goal);

// The schedule auto: the default ladder without sizes that cost as much as the next one, and with sizes
// between where padding takes most time, for forwards of 33 to max_tokens tokens alike. 96 sizes, or as many as the
// default ladder has.
std::vector<std::int64_t> auto_ladder(std::int64_t max_tokens, const TokenCost& cost);

// The ladder for forwards as they were seen: `largest`, at least 1, and the sizes that save most.
std::vector<std::int64_t> fitted_ladder(std::int64_t largest, const TokenCost& cost, const TokenWeights& weights,
                                        const LadderGoal& goal);

}  // namespace tessera
