#include "tessera/engine/drafts/draft_counts.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr std::int64_t kCheapRows = 64;   // if nothing was measured, drafts fill a forward up to so many rows,
constexpr double kCostOfCheapRows = 0.5;  // which are assumed to last so much longer than none

// What more drafts must bring: estimates are uncertain, and a step with drafts has costs that were not measured.
constexpr double kMargin = 1.02;

double assumed_ms(std::int64_t rows) {
  return 1 + kCostOfCheapRows * static_cast<double>(rows) / static_cast<double>(kCheapRows);
}

}  // namespace

std::span<const std::int64_t> DraftCounts::choose(std::span<const DraftOffer> offers, std::int64_t rows,
                                                  std::int64_t requests, std::int64_t room, const DraftCosts& costs) {
  counts_.assign(offers.size(), 0);
  heap_.clear();
  order_.clear();
  const auto less = [](const Next& a, const Next& b) { return a.probability < b.probability; };
  for (std::size_t i = 0; i < offers.size(); ++i)
    if (offers[i].acceptance > 0 && offers[i].most > 0)
      heap_.push_back({.probability = offers[i].acceptance, .offer = i});
  std::ranges::make_heap(heap_, less);

  const bool measured = costs.forward_ms && costs.forward_ms(rows, requests) && costs.forward_ms(rows + 1, requests);
  if (!measured) room = std::min(room, kCheapRows - rows);
  const auto forward_ms = [&](std::int64_t all) {
    return measured ? costs.forward_ms(all, requests).value_or(assumed_ms(all)) : assumed_ms(all);
  };
  const double draft_ms = measured && costs.draft_ms ? costs.draft_ms() : 0;
  auto tokens = static_cast<double>(requests);
  double best = kMargin * tokens / forward_ms(rows);
  std::size_t chosen = 0;
  std::int64_t rounds = 0;  // of the layer
  while (!heap_.empty() && std::ssize(order_) < room) {
    std::ranges::pop_heap(heap_, less);
    Next& next = heap_.back();
    const DraftOffer& offer = offers[next.offer];
    const std::int64_t count = ++counts_[next.offer];
    order_.push_back(next.offer);
    tokens += next.probability;
    if (offer.by_layer) rounds = std::max(rounds, count);
    next.probability *= offer.acceptance;
    if (count < offer.most) {
      std::ranges::push_heap(heap_, less);
    } else {
      heap_.pop_back();
    }
    const double ms = forward_ms(rows + std::ssize(order_)) + draft_ms * static_cast<double>(rounds);
    if (tokens / ms <= best) continue;
    best = tokens / ms;
    chosen = order_.size();
  }
  for (std::size_t i = chosen; i < order_.size(); ++i) --counts_[order_[i]];
  return counts_;
}

}  // namespace tessera
