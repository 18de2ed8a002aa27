// Chooses prefill sizes by their cost: the sizes that save the most time spent on padding, for forwards of any token
// count or of counts that were seen. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tessera {

// The time of a forward of `tokens` tokens, in any unit. It must not fall as the tokens grow.
using TokenCost = std::function<double(std::int64_t tokens)>;

// Returns the cost if nothing was measured, in units of one token's cost: one for each token, and a constant for
// reading the weights once. On an H200 the weights take as long as about 250 tokens of Llama-3-8B or 600 of Qwen3-0.6B;
// on a CPU as long as fewer tokens (docs/measurements/graphs.md). The constant is at the low end, which makes padding
// look expensive, because a size too many costs less than a missing one.
double prior_token_cost(std::int64_t tokens);

// [tokens]: how often a forward has that many tokens, in any unit.
using TokenWeights = std::vector<double>;
TokenWeights uniform_weights(std::int64_t first, std::int64_t last);

// The share of padding in everything computed, if forwards are padded to the ladder's next size. Forwards above the
// largest size are not counted.
struct PaddingWaste {
  double tokens = 0;
  double time = 0;
  double exact = 0;   // share of the forwards that have exactly a captured size
  double served = 0;  // share of the forwards that are at most the largest size
};
PaddingWaste padding_waste(std::span<const std::int64_t> sizes, const TokenCost& cost, const TokenWeights& weights);

struct LadderGoal {
  // No sizes are added once padding takes less than this share of the time. Without measurements, costs may rise faster
  // than prior_token_cost says: these 2 % are 2.5 % by the times of Qwen3-0.6B on an H200.
  double time_waste = 0.02;
  double exact = 1;  // no sizes are added either once this share of the forwards has an exact size
  std::size_t most_sizes = 96;
  std::int64_t step = 16;  // sizes are multiples of it
};

// Adds sizes, always the one that saves most, until a goal is reached or no size saves anything.
void add_sizes(std::vector<std::int64_t>& sizes, const TokenCost& cost, const TokenWeights& weights,
               const LadderGoal& goal);

// Returns the schedule "auto": the default ladder without sizes that cost as much as the next one, and with additional
// sizes in the ranges in which padding takes most time. All token counts from 33 to max_tokens have the same weight.
// The schedule has 96 sizes, or as many as the default ladder if that has more.
std::vector<std::int64_t> auto_ladder(std::int64_t max_tokens, const TokenCost& cost);

// Returns the ladder for forwards that were seen: `largest`, at least 1, and the sizes that save most.
std::vector<std::int64_t> fitted_ladder(std::int64_t largest, const TokenCost& cost, const TokenWeights& weights,
                                        const LadderGoal& goal);

}  // namespace tessera
