// Chooses the sizes for which prefill graphs are captured, so that padding takes as little time as possible. Either all
// token counts have the same weight, or the weight of a token count is the number of observed forwards with that count.
// The functions are pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tessera {

// A function that returns the time of a forward of `tokens` tokens, in any unit. The time must not fall as the token
// count grows.
using TokenCost = std::function<double(std::int64_t tokens)>;

// Returns the cost to use before anything was measured, in units of one token's cost. It is `tokens` plus a constant
// for reading the weights once. On an H200, reading the weights takes as long as computing about 250 tokens of
// Llama-3-8B, or about 600 tokens of Qwen3-0.6B. On a CPU the numbers are smaller (docs/measurements/graphs.md). The
// constant is at the low end of these numbers, so padding looks expensive and the ladder gets more sizes. An
// unnecessary size does less harm than a missing one.
double prior_token_cost(std::int64_t tokens);

// Element n is the relative frequency of forwards with n tokens.
using TokenWeights = std::vector<double>;
TokenWeights uniform_weights(std::int64_t first, std::int64_t last);

// The share of the computation that goes into padding, if each forward is padded to the next size of the ladder.
// For the share `tokens`, the computation is measured in tokens. For the share `time`, it is measured in the unit of
// TokenCost. Both shares leave out forwards above the largest size.
struct PaddingWaste {
  double tokens = 0;
  double time = 0;
  double exact = 0;   // share of all forwards that have exactly a captured size
  double served = 0;  // share of all forwards that are not above the largest size
};
PaddingWaste padding_waste(std::span<const std::int64_t> sizes, const TokenCost& cost, const TokenWeights& weights);

struct LadderGoal {
  // No more sizes are added once padding takes at most this share of the time. If the cost function is
  // prior_token_cost, the real share may be higher. For Qwen3-0.6B on an H200, an estimate of 2 % corresponds to 2.5 %
  // of the measured time.
  double time_waste = 0.02;
  double exact = 1;  // no more sizes are added once this share of all forwards has an exact size
  std::size_t most_sizes = 96;
  std::int64_t step = 16;  // added sizes are multiples of `step`
};

// Adds sizes one at a time until a goal is reached or no size saves time. Each time it adds the size that saves the
// most.
void add_sizes(std::vector<std::int64_t>& sizes, const TokenCost& cost, const TokenWeights& weights,
               const LadderGoal& goal);

// Returns the sizes of the schedule "auto". It starts from the default ladder, leaves out sizes that cost about as much
// as the next larger size, and adds sizes where padding takes the most time. All token counts from 33 to max_tokens
// have the same weight. The schedule has at most 96 sizes, or as many as the default ladder if that has more.
std::vector<std::int64_t> auto_ladder(std::int64_t max_tokens, const TokenCost& cost);

// Returns the ladder for observed forwards. It consists of `largest` and the sizes that save the most time.
// Precondition: largest >= 1.
std::vector<std::int64_t> fitted_ladder(std::int64_t largest, const TokenCost& cost, const TokenWeights& weights,
                                        const LadderGoal& goal);

}  // namespace tessera
