#include "tessera/engine/drafts/draft_counts.h"

#include <algorithm>

namespace tessera {
namespace {

// Until forwards are measured, drafts fill a forward up to at most kCheapRows rows. A forward of that many rows is
// assumed to take 1 + kCostOfCheapRows times as long as an empty one.
constexpr std::int64_t kCheapRows = 64;
constexpr double kCostOfCheapRows = 0.5;

// A step without prompts gets drafts only if they raise its predicted tokens per time by at least this factor. In a
// step with prompts, drafts must save at least this many times the time that they take. The factor is above 1 because
// estimates are uncertain, and because a step with drafts is not scheduled ahead.
constexpr double kMargin = 1.04;

double assumed_ms(std::int64_t rows) {
  return 1 + kCostOfCheapRows * static_cast<double>(rows) / static_cast<double>(kCheapRows);
}

}  // namespace

std::span<const std::int64_t> DraftCounts::choose(std::span<const DraftOffer> offers, const Step& step,
                                                  const DraftCosts& costs) {
  counts_.assign(offers.size(), 0);
  heap_.clear();
  order_.clear();
  const auto less = [](const Next& a, const Next& b) { return a.probability < b.probability; };
  for (std::size_t i = 0; i < offers.size(); ++i)
    if (offers[i].acceptance > 0 && offers[i].most > 0)
      heap_.push_back({.probability = offers[i].acceptance, .offer = i});
  std::ranges::make_heap(heap_, less);

  const std::int64_t requests = step.requests;
  const bool has_prompts = step.prompt_rows > 0;
  const std::int64_t plain_rows = requests + step.prompt_rows;
  const auto prompts_ms = [&](std::int64_t rows) { return costs.prompts_ms ? costs.prompts_ms(rows) : std::nullopt; };
  const std::optional<double> plain_ms = has_prompts ? prompts_ms(plain_rows) : std::nullopt;
  const bool measured = costs.forward_ms && costs.forward_ms(requests, requests) &&
                        costs.forward_ms(requests + 1, requests) && (!has_prompts || plain_ms);
  const std::int64_t room = measured ? step.room : std::min(step.room, kCheapRows - requests);
  const auto forward_ms = [&](std::int64_t rows) {
    return measured ? costs.forward_ms(rows, requests).value_or(assumed_ms(rows)) : assumed_ms(rows);
  };
  // Returns how much longer a step with prompts takes with `drafts` drafts. If prompts fill the step, drafts replace
  // rows of prompts. Once forwards are measured, each of these drafts costs the mean time of a row.
  const auto longer_ms = [&](std::int64_t drafts) {
    if (!measured) return assumed_ms(drafts) - assumed_ms(0);
    const double by_mean = static_cast<double>(drafts) * *plain_ms / static_cast<double>(plain_rows);
    if (step.is_full) return by_mean;
    const std::optional<double> with_drafts = prompts_ms(plain_rows + drafts);
    return with_drafts ? std::max(*with_drafts - *plain_ms, 0.0) : by_mean;
  };
  const double draft_ms = measured && costs.draft_ms ? costs.draft_ms() : 0;
  const double slowdown = measured && costs.slowdown ? costs.slowdown(requests) : 1;
  const double decode_ms = forward_ms(requests);
  const auto tokens = static_cast<double>(requests);
  // Returns the value of a step with `drafts` drafts, of which `kept` are expected to be kept. For a step without
  // prompts, the value is the number of tokens per time. For a step with prompts, it is the time that the drafts save,
  // less kMargin times the time that they take.
  const auto worth = [&](std::int64_t drafts, double kept, double layer_ms) {
    if (has_prompts) return kept * decode_ms / tokens - kMargin * (longer_ms(drafts) + layer_ms);
    return (tokens + kept) / ((forward_ms(requests + drafts) + layer_ms) * slowdown);
  };
  double best = has_prompts ? 0 : kMargin * tokens / decode_ms;
  double kept = 0;
  std::size_t chosen = 0;
  double chosen_kept = 0;
  double chosen_layer_ms = 0;
  std::int64_t rounds = 0;  // number of times that the next-token layer runs
  while (!heap_.empty() && std::ssize(order_) < room) {
    std::ranges::pop_heap(heap_, less);
    Next& next = heap_.back();
    const DraftOffer& offer = offers[next.offer];
    const std::int64_t count = ++counts_[next.offer];
    order_.push_back(next.offer);
    kept += next.probability;
    if (offer.by_layer) rounds = std::max(rounds, count);
    next.probability *= offer.acceptance;
    if (count < offer.most) {
      std::ranges::push_heap(heap_, less);
    } else {
      heap_.pop_back();
    }
    const double layer_ms = draft_ms * static_cast<double>(rounds);
    const double now = worth(std::ssize(order_), kept, layer_ms);
    if (now <= best) continue;
    best = now;
    chosen = order_.size();
    chosen_kept = kept;
    chosen_layer_ms = layer_ms;
  }
  const auto drafts = static_cast<std::int64_t>(chosen);
  saving_.reset();
  if (measured) saving_.emplace();
  if (measured && drafts > 0) {
    const double plain = has_prompts ? *plain_ms : decode_ms;
    const double forward = has_prompts ? plain + longer_ms(drafts) : forward_ms(requests + drafts);
    saving_ = {.gained_ms = chosen_kept * decode_ms / tokens,
               .taken_ms = forward - plain + chosen_layer_ms,
               .predicted_ms = forward + chosen_layer_ms,
               .has_prompts = has_prompts};
  }
  for (std::size_t i = chosen; i < order_.size(); ++i) --counts_[order_[i]];
  return counts_;
}

}  // namespace tessera
