#include "tessera/piecewise/auto_ladder.h"

#include <algorithm>
#include <optional>
#include <ranges>

#include "tessera/piecewise/ladder.h"

namespace tessera {
namespace {

// A size is left out if a forward of this size is hardly cheaper than one of the next larger size: the difference is at
// most this share of the larger size's cost.
constexpr double kSameCost = 0.005;

struct Addition {
  std::int64_t size = 0;
  double saving = 0;
};

// Returns the size between `below` and `above` that saves the most time. A captured size saves time, because forwards
// of more than `below` tokens and at most that size are padded to it instead of to `above`.
std::optional<Addition> best_between(std::int64_t below, std::int64_t above, const TokenCost& cost,
                                     const TokenWeights& weights, std::int64_t step) {
  std::optional<Addition> best;
  const double cost_above = cost(above);
  double forwards = 0;
  for (std::int64_t tokens = below + 1; tokens < above; ++tokens) {
    if (tokens < std::ssize(weights)) forwards += weights[static_cast<std::size_t>(tokens)];
    if (tokens % step != 0) continue;
    const double saving = forwards * (cost_above - cost(tokens));
    if (saving > 0 && (!best || saving > best->saving)) best = Addition{tokens, saving};
  }
  return best;
}

// The range between two neighbouring sizes, and the size in this range that would save the most time.
struct Gap {
  std::int64_t below;
  std::int64_t above;
  std::optional<Addition> best;
};

}  // namespace

double prior_token_cost(std::int64_t tokens) { return 256.0 + static_cast<double>(tokens); }

TokenWeights uniform_weights(std::int64_t first, std::int64_t last) {
  TokenWeights weights(static_cast<std::size_t>(std::max<std::int64_t>(last, 0) + 1));
  for (std::int64_t tokens = first; tokens <= last; ++tokens) weights[static_cast<std::size_t>(tokens)] = 1;
  return weights;
}

PaddingWaste padding_waste(std::span<const std::int64_t> sizes, const TokenCost& cost, const TokenWeights& weights) {
  double all = 0;
  double served = 0;
  double exact = 0;
  double real_tokens = 0;
  double tokens_computed = 0;
  double real_time = 0;
  double time_taken = 0;
  for (std::int64_t tokens = 1; tokens < std::ssize(weights); ++tokens) {
    const double weight = weights[static_cast<std::size_t>(tokens)];
    if (weight <= 0) continue;
    all += weight;
    const std::optional<std::int64_t> size = round_up(sizes, tokens);
    if (!size) continue;
    served += weight;
    exact += *size == tokens ? weight : 0;
    real_tokens += weight * static_cast<double>(tokens);
    tokens_computed += weight * static_cast<double>(*size);
    real_time += weight * cost(tokens);
    time_taken += weight * cost(*size);
  }
  if (served <= 0) return {};
  return {.tokens = 1 - real_tokens / tokens_computed,
          .time = 1 - real_time / time_taken,
          .exact = exact / all,
          .served = served / all};
}

void add_sizes(std::vector<std::int64_t>& sizes, const TokenCost& token_cost, const TokenWeights& weights,
               const LadderGoal& goal) {
  if (sizes.empty()) return;
  std::vector<double> costs;  // costs[n] is the cost of n tokens
  for (std::int64_t tokens = 0; tokens <= sizes.back(); ++tokens) costs.push_back(token_cost(tokens));
  const TokenCost cost = [&](std::int64_t tokens) { return costs[static_cast<std::size_t>(tokens)]; };
  std::vector<Gap> gaps;
  const auto add_gap = [&](std::int64_t below, std::int64_t above) {
    gaps.push_back({below, above, best_between(below, above, cost, weights, goal.step)});
  };
  for (std::size_t i = 0; i < sizes.size(); ++i) add_gap(i == 0 ? 0 : sizes[i - 1], sizes[i]);
  while (sizes.size() < goal.most_sizes) {
    const PaddingWaste waste = padding_waste(sizes, cost, weights);
    if (waste.time <= goal.time_waste || waste.exact >= goal.exact) return;
    const auto saving = [](const Gap& gap) { return gap.best ? gap.best->saving : 0; };
    const auto most = std::ranges::max_element(gaps, {}, saving);
    if (most == gaps.end() || !most->best) return;
    const Gap gap = *most;
    gaps.erase(most);
    add_gap(gap.below, gap.best->size);
    add_gap(gap.best->size, gap.above);
    sizes.insert(std::ranges::upper_bound(sizes, gap.best->size), gap.best->size);
  }
}

std::vector<std::int64_t> auto_ladder(std::int64_t max_tokens, const TokenCost& cost) {
  constexpr std::int64_t kFirst = 33;  // smaller forwards take as long as their launches, so padding adds little
  const std::vector<std::int64_t> scheduled = prefill_ladder(max_tokens);
  std::vector<std::int64_t> sizes;
  for (const std::int64_t size : scheduled | std::views::reverse)
    if (sizes.empty() || cost(size) < (1 - kSameCost) * cost(sizes.back())) sizes.push_back(size);
  std::ranges::reverse(sizes);
  add_sizes(sizes, cost, uniform_weights(kFirst, max_tokens), {});
  return sizes;
}

std::vector<std::int64_t> fitted_ladder(std::int64_t largest, const TokenCost& cost, const TokenWeights& weights,
                                        const LadderGoal& goal) {
  std::vector<std::int64_t> sizes = {largest};
  add_sizes(sizes, cost, weights, goal);
  return sizes;
}

}  // namespace tessera
