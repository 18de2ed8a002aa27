// Reports the graphs of a run and how its forwards used them, as JSON and as a table.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/cli/session/session.h"
#include "tessera/engine/engine.h"

namespace tessera::cli {

// Forwards that were dispatched in the same way.
struct ForwardGroup {
  ForwardRecord each;  // one forward's shape and dispatch; tokens, padding and ms are sums over the group
  std::int64_t count = 0;
};
// Returns the groups of forwards, in the order of each group's first forward.
std::vector<ForwardGroup> group_forwards(const std::vector<ForwardRecord>& forwards);

// Returns {"pieces", "split_ops", "prefill": {"enabled", "captured_sizes", "sizes": the sizes that were replayed, …},
// "decode", "forwards": [{"phase", "runner", "size", "reason", "count", "tokens", "padding", "ms"}], "reasons",
// "tokens", "padding", "memory"}.
Json graphs_json(const Engine& engine, const std::vector<ForwardRecord>& forwards);

// Returns a text that describes the model, its graphs, and the graphs that each group of forwards used.
std::string graphs_text(const Engine& engine, const std::vector<ForwardRecord>& forwards);

}  // namespace tessera::cli
