// An engine's graphs and memory. They change while the engine serves requests: when the graph of a size is captured
// late or dropped, or when a size runs eagerly for the first time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/runner/model_runner.h"

namespace tessera {

class Peers;

struct RunnerInventory {
  bool enabled = false;
  std::int64_t pieces = 0;
  std::int64_t split_ops = 0;
  std::int64_t graphs = 0;               // number of recorded graphs
  std::int64_t general_compiles = 0;     // programs that compilers made for any size
  std::int64_t cached_programs = 0;      // programs that were read from the profile cache and not compiled
  std::int64_t shape_compiles = 0;       // number of sizes that were bound to kernels and addresses since the start
  std::vector<std::int64_t> captured{};  // captured sizes, ascending
  std::vector<std::int64_t> full{};      // sizes that are replayed as one graph that includes attention
  std::vector<std::int64_t> pending{};   // sizes not captured yet, ascending
  std::vector<std::pair<std::int64_t, std::string>> dropped{};  // sizes that were dropped, and why
  double capture_seconds = 0;
};

struct GraphInventory {
  RunnerInventory prefill{};
  RunnerInventory decode{};
  RunnerInventory head{};
  std::optional<RunnerInventory> vision{};  // set if the model has a tower; its sizes are patches
  MemoryReport memory{};
  MemoryReport predicted_memory{};
  int ranks = 1;                            // number of ranks that run each forward together
  std::vector<MemoryReport> rank_memory{};  // other ranks' memory at the last capture, without the runners' sizes
  std::int64_t max_tokens = 0;              // maximum number of tokens of a forward
};

// Keeps the current inventory and rebuilds it only after a change. If nothing changed, a call takes a few nanoseconds.
class GraphInventoryCache {
 public:
  std::shared_ptr<const GraphInventory> of(const ModelRunner& runner, Peers& peers);

 private:
  void ask_peers(Peers& peers);

  std::shared_ptr<const GraphInventory> inventory_;
  // The other ranks' memory. A rank can report its memory only between two steps. The engine therefore asks the ranks
  // only after graphs have changed.
  std::vector<MemoryReport> rank_memory_;
  std::int64_t embedding_rows_ = 0;  // embedding rows that had memory when the inventory was made
};

}  // namespace tessera
