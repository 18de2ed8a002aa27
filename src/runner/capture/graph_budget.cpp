#include "tessera/runner/capture/graph_budget.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

// Returns the share of forwards with more than `above` and at most `size` rows.
double share_of_forwards(const BudgetLadder& ladder, std::int64_t above, std::int64_t size) {
  if (!ladder.histogram.empty()) {
    std::int64_t within = 0;
    std::int64_t all = 0;
    for (const auto& [rows, count] : ladder.histogram) {
      all += count;
      if (rows > above && rows <= size) within += count;
    }
    return static_cast<double>(within) / static_cast<double>(std::max<std::int64_t>(all, 1));
  }
  // A count of n rows stands for the interval from n - 0.5 to n + 0.5, so the logarithm is taken at rows + 0.5.
  const auto logarithm = [](std::int64_t rows) { return std::log(static_cast<double>(rows) + 0.5); };
  return (logarithm(size) - logarithm(above)) / (logarithm(ladder.sizes.back()) - logarithm(0));
}

struct Candidate {
  double value_per_byte = std::numeric_limits<double>::infinity();
  std::size_t index = 0;
};

Candidate least_valuable(const BudgetLadder& ladder, const std::vector<std::int64_t>& sizes, std::size_t count) {
  Candidate least;
  for (std::size_t i = 0; i < count; ++i) {
    const double value =
        size_value(ladder, sizes, i) / static_cast<double>(std::max<std::int64_t>(ladder.bytes_each, 1));
    if (value < least.value_per_byte) least = {value, i};
  }
  return least;
}

void drop(std::vector<std::int64_t>& sizes, std::size_t index, std::vector<std::int64_t>& dropped) {
  const auto at = sizes.begin() + static_cast<std::ptrdiff_t>(index);
  dropped.insert(std::lower_bound(dropped.begin(), dropped.end(), *at), *at);
  sizes.erase(at);
}

}  // namespace

double size_value(const BudgetLadder& ladder, const std::vector<std::int64_t>& sizes, std::size_t index) {
  const std::int64_t size = sizes[index];
  if (!ladder.padding) return share_of_forwards(ladder, size - 1, size);
  const std::int64_t above = index == 0 ? 0 : sizes[index - 1];
  const double forwards = share_of_forwards(ladder, above, size);
  if (index + 1 == sizes.size()) return forwards;
  const std::int64_t next = sizes[index + 1];
  return forwards * static_cast<double>(next - size) / static_cast<double>(next);
}

BudgetedSizes fit_graph_budget(const BudgetLadder& prefill, const BudgetLadder& decode, const BudgetLadder& vision,
                               std::int64_t budget_bytes) {
  BudgetedSizes kept{.prefill = prefill.sizes,
                     .decode = decode.sizes,
                     .vision = vision.sizes,
                     .dropped_prefill = {},
                     .dropped_decode = {},
                     .dropped_vision = {},
                     .bytes = 0};
  struct Part {
    const BudgetLadder& ladder;
    std::vector<std::int64_t>& sizes;
    std::vector<std::int64_t>& dropped;
    bool keeps_last;  // whether the ladder's largest size is dropped only after the other ladders are empty
  };
  const std::array parts = {Part{prefill, kept.prefill, kept.dropped_prefill, true},
                            Part{decode, kept.decode, kept.dropped_decode, false},
                            Part{vision, kept.vision, kept.dropped_vision, false}};
  const auto bytes = [&] {
    std::int64_t sum = 0;
    for (const Part& part : parts) sum += std::ssize(part.sizes) * part.ladder.bytes_each;
    return sum;
  };
  while (bytes() > budget_bytes) {
    const Part* from = nullptr;
    Candidate least;
    for (const Part& part : parts) {
      const std::size_t may_go = part.sizes.size() - (part.keeps_last && !part.sizes.empty() ? 1 : 0);
      const Candidate candidate = least_valuable(part.ladder, part.sizes, may_go);
      if (may_go == 0 || (from != nullptr && candidate.value_per_byte >= least.value_per_byte)) continue;
      from = &part;
      least = candidate;
    }
    if (from == nullptr && kept.prefill.empty()) break;  // only reached if the budget is below 0
    if (from == nullptr) from = parts.data();
    drop(from->sizes, least.index, from->dropped);
  }
  kept.bytes = bytes();
  return kept;
}

}  // namespace tessera
