// The pass manager: what happens to a model's graph between its architecture and the cut into pieces.
//
// A pass is a pure function from graph to graph with a name. All passes stand in one list, in the order in which they
// run; each can be switched off by its name, is timed, and what it returns is verified: a pass that breaks a graph
// fails there, by its name, and not in a kernel.
//
//   PassRun run = TRY(run_passes(graph, registry.ops, {.disabled = {"fuse_native_forms"}}));
//   run.graph, run.reports
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/hash.h"
#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// The changed graph; std::nullopt where the pass changes nothing.
using PassResult = Result<std::optional<ir::Graph>>;
// The result of a pass that changes nothing. (A bare std::nullopt would make a Result without a value.)
inline std::optional<ir::Graph> unchanged() { return std::nullopt; }

struct Pass {
  std::string_view name;     // by which it can be switched off
  std::string_view summary;  // one line
  std::int64_t version = 1;  // raised with every change of what the pass makes of some graph
  // Pure. The graph is verified; inputs, weights, states, outputs and their names and types stay as they are.
  std::function<PassResult(const ir::Graph& graph, const ir::OpTable& ops)> run{};
};

// The built-in passes, in the order in which they run. A registry may have more (runner/capture/registry.h).
std::span<const Pass> pass_list();

// What one pass did to one graph.
struct PassReport {
  std::string graph;  // its name
  std::string pass;
  bool changed = false;
  std::int64_t nodes_before = 0;
  std::int64_t nodes_after = 0;
  double ms = 0;  // of the pass and the verification of its result
};

struct PassOptions {
  std::vector<std::string> disabled = {};  // by name
  // Called after each pass that ran, changed or not; the graphs are valid during the call.
  std::function<void(std::string_view pass, const ir::Graph& before, const ir::Graph& after)> observer = {};
};

struct PassRun {
  ir::Graph graph;
  std::vector<PassReport> reports;  // one for each pass that ran
};

// kInvalidArgument for a name that no pass has, with those that exist.
Status check_pass_names(std::span<const std::string> names, std::span<const Pass> passes = pass_list());

// Runs the passes that are not disabled. An error is the first pass's, and names it; a graph that is broken before is
// refused. The second form runs `passes` instead of pass_list(); options.disabled may name these alone.
Result<PassRun> run_passes(ir::Graph graph, const ir::OpTable& ops, const PassOptions& options = {});
Result<PassRun> run_passes(ir::Graph graph, const ir::OpTable& ops, const PassOptions& options,
                           std::span<const Pass> passes);

// A content hash of the passes that run: names, versions and order. Equal in every process and on every machine.
Result<Hash128> passes_hash(const PassOptions& options = {}, std::span<const Pass> passes = pass_list());

}  // namespace tessera
