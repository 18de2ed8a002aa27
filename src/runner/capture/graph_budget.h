// Chooses which sizes keep their graphs if the graphs of all sizes would exceed a memory budget.
//
// The value of a size is the work that its graph saves. Without this graph, forwards of this size are padded to the
// next larger size, or run without a graph if there is no larger size. The size that saves least work per byte of graph
// memory is dropped first. The values of its neighbours are then computed again. The functions are pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace tessera {

struct BudgetLadder {
  std::vector<std::int64_t> sizes;  // ascending
  std::int64_t bytes_each = 0;      // graph memory of one size
  bool padding = true;  // if false, forwards are not padded, so a size serves only forwards of exactly this size
  // The number of forwards for each row count. If this map is empty, row counts are taken to be uniform on a
  // logarithmic scale, so forwards with 8 to 16 rows are as frequent as forwards with 16 to 32 rows.
  std::map<std::int64_t, std::int64_t> histogram{};
};

struct BudgetedSizes {
  std::vector<std::int64_t> prefill;  // kept, ascending
  std::vector<std::int64_t> decode;
  std::vector<std::int64_t> vision;
  std::vector<std::int64_t> dropped_prefill;  // ascending
  std::vector<std::int64_t> dropped_decode;
  std::vector<std::int64_t> dropped_vision;
  std::int64_t bytes = 0;  // graph memory of the kept sizes
};

// Returns the share of all forwards' work that the graph of sizes[index] is expected to save. Without this graph, the
// size's forwards would be padded to the next size, so the graph saves the padding. If there is no next size or
// forwards are not padded, the size's forwards would run without a graph, so the graph saves all of their work.
// Prefill, decode and vision tower have equal weight, since a server spends similar time on each.
double size_value(const BudgetLadder& ladder, const std::vector<std::int64_t>& sizes, std::size_t index);

// Drops sizes until the graphs fit into the budget. The largest prefill size is dropped last, because without it every
// long forward is eager.
BudgetedSizes fit_graph_budget(const BudgetLadder& prefill, const BudgetLadder& decode, const BudgetLadder& vision,
                               std::int64_t budget_bytes);

}  // namespace tessera
