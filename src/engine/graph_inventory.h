// An engine's graphs and memory. It changes in service where sizes are captured late, given up, or run eagerly for the
// first time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/runner/model_runner.h"

namespace tessera {

struct RunnerInventory {
  bool enabled = false;
  std::int64_t pieces = 0;
  std::int64_t split_ops = 0;
  std::int64_t graphs = 0;                                      // recorded ones
  std::int64_t general_compiles = 0;                            // programs made for it and no runner above, of any size
  std::int64_t cached_programs = 0;                             // those that they loaded from the profile cache
  std::int64_t shape_compiles = 0;                              // sizes bound to kernels and addresses since the start
  std::vector<std::int64_t> captured{};                         // sizes, ascending
  std::vector<std::int64_t> full{};                             // those replayed as one graph, attention inside
  std::vector<std::int64_t> pending{};                          // sizes not captured yet, ascending
  std::vector<std::pair<std::int64_t, std::string>> dropped{};  // sizes given up, and why
  double capture_seconds = 0;
};

struct GraphInventory {
  RunnerInventory prefill{};
  RunnerInventory decode{};
  RunnerInventory head{};
  std::optional<RunnerInventory> vision{};  // of a model with a tower; sizes are patches
  MemoryReport memory{};
  MemoryReport predicted_memory{};
  int ranks = 1;                            // that run each forward together
  std::vector<MemoryReport> rank_memory{};  // of the ranks 1 … at the last capture, without the runners' sizes
  std::int64_t max_tokens = 0;              // of one forward
};

// The current inventory, rebuilt only after a change: a call costs some nanoseconds otherwise.
class GraphInventoryCache {
 public:
  std::shared_ptr<const GraphInventory> of(const ModelRunner& runner);

 private:
  void ask_ranks(RankGroup& ranks);

  std::shared_ptr<const GraphInventory> inventory_;
  std::vector<MemoryReport> rank_memory_;  // asked for when graphs have changed: the ranks answer between two steps
  std::int64_t embedding_rows_ = 0;        // that have memory in it
};

}  // namespace tessera
