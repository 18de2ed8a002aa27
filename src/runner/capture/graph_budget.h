// Which sizes graphs are kept for where all of them would take too much memory (a memory budget).
//
// A size is worth the padding that it saves: a forward that it serves is padded to the next size without it, and runs
// without a graph where there is no next one. The size that saves least for its bytes goes first, and its neighbours
// are valued anew. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace tessera {

struct BudgetLadder {
  std::vector<std::int64_t> sizes;  // ascending
  std::int64_t bytes_each = 0;      // of one size's graphs
  bool padding = true;              // forwards are padded to a size; without, a size serves itself alone
  // Forwards by their rows. Empty: as many between 8 and 16 as between 16 and 32, and so on (uniform in the logarithm).
  std::map<std::int64_t, std::int64_t> histogram{};
};

struct BudgetedSizes {
  std::vector<std::int64_t> prefill;  // kept, ascending
  std::vector<std::int64_t> decode;
  std::vector<std::int64_t> vision;
  std::vector<std::int64_t> dropped_prefill;  // ascending
  std::vector<std::int64_t> dropped_decode;
  std::vector<std::int64_t> dropped_vision;
  std::int64_t bytes = 0;  // of what is kept
};

// Expected share of a forward of this ladder that is saved by keeping sizes[index]: padding, or, where no size follows,
// all of it. Shares of prefill, decode and a vision tower count alike, since a server spends time of the same order on
// each.
double size_value(const BudgetLadder& ladder, const std::vector<std::int64_t>& sizes, std::size_t index);

// The largest prefill size is dropped last: without it every long forward is eager.
BudgetedSizes fit_graph_budget(const BudgetLadder& prefill, const BudgetLadder& decode, const BudgetLadder& vision,
                               std::int64_t budget_bytes);

}  // namespace tessera
