// Chooses the sizes that keep their graphs if the graphs of all sizes would exceed a memory budget.
//
// The value of a size is the padding that it saves: without it, its forwards are padded to the next size, or run
// without a graph if there is no next size. The size that saves least for its bytes is dropped first, and its
// neighbours are valued again. The functions are pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace tessera {

struct BudgetLadder {
  std::vector<std::int64_t> sizes;  // ascending
  std::int64_t bytes_each = 0;      // one size's graphs
  bool padding = true;              // false: forwards are not padded, so a size takes only forwards of exactly its rows
  // Number of forwards by their rows. Empty: the distribution is uniform in the logarithm, so there are as many between
  // 8 and 16 rows as between 16 and 32.
  std::map<std::int64_t, std::int64_t> histogram{};
};

struct BudgetedSizes {
  std::vector<std::int64_t> prefill;  // kept, ascending
  std::vector<std::int64_t> decode;
  std::vector<std::int64_t> vision;
  std::vector<std::int64_t> dropped_prefill;  // ascending
  std::vector<std::int64_t> dropped_decode;
  std::vector<std::int64_t> dropped_vision;
  std::int64_t bytes = 0;  // the kept sizes' graphs
};

// Returns the share of a forward that keeping sizes[index] is expected to save: the padding or, if no larger size
// follows, the whole forward. Shares of prefill, decode and vision tower have equal weight, since a server spends time
// of the same order on each.
double size_value(const BudgetLadder& ladder, const std::vector<std::int64_t>& sizes, std::size_t index);

// Drops sizes until the graphs fit into the budget. The largest prefill size is dropped last: without it, every long
// forward is eager.
BudgetedSizes fit_graph_budget(const BudgetLadder& prefill, const BudgetLadder& decode, const BudgetLadder& vision,
                               std::int64_t budget_bytes);

}  // namespace tessera
