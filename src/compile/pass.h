// The pass manager. Passes change a model's graph after it is built and before it is cut into pieces.
//
// A pass has a name and a pure function from graph to graph. All passes are in one list, in the order in which they
// run. A user can switch a pass off by its name. The manager measures the time of each pass and verifies its result. If
// a pass breaks a graph, the error therefore names the pass.
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

// The changed graph, or std::nullopt if the pass changes nothing.
using PassResult = Result<std::optional<ir::Graph>>;
// Returns the result of a pass that changes nothing. A pass must not write `return std::nullopt`, because that would
// make a Result without a value.
inline std::optional<ir::Graph> unchanged() { return std::nullopt; }

struct Pass {
  std::string_view name;     // the name by which a user switches the pass off
  std::string_view summary;  // a description in one line
  std::int64_t version = 1;  // incremented with every change of the pass's results
  // The pass itself, a pure function. It gets a verified graph. Inputs, weights, states and outputs must keep their
  // names and types.
  std::function<PassResult(const ir::Graph& graph, const ir::OpTable& ops)> run{};
};

// Returns the built-in passes, in the order in which they run. A registry may add more (runner/capture/registry.h).
std::span<const Pass> pass_list();

// A report of what one pass did to one graph.
struct PassReport {
  std::string graph;  // the graph's name
  std::string pass;
  bool changed = false;
  std::int64_t nodes_before = 0;
  std::int64_t nodes_after = 0;
  double ms = 0;  // time of the pass and of the verification of its result
};

struct PassOptions {
  std::vector<std::string> disabled = {};  // names of passes
  // Called after each pass that ran, even if it did not change the graph. The graphs are valid during the call.
  std::function<void(std::string_view pass, const ir::Graph& before, const ir::Graph& after)> observer = {};
};

struct PassRun {
  ir::Graph graph;
  std::vector<PassReport> reports;  // one for each pass that ran
};

// Returns kInvalidArgument if one of `names` is unknown. The message lists the existing names.
Status check_pass_names(std::span<const std::string> names, std::span<const Pass> passes = pass_list());

// Runs the passes that are not disabled. If one fails, stops and returns an error that names the pass. Returns an error
// if `graph` does not verify. The second form runs `passes` instead of pass_list(), and options.disabled may then
// contain only names of these passes.
Result<PassRun> run_passes(ir::Graph graph, const ir::OpTable& ops, const PassOptions& options = {});
Result<PassRun> run_passes(ir::Graph graph, const ir::OpTable& ops, const PassOptions& options,
                           std::span<const Pass> passes);

// Returns a hash of the names, versions and order of the passes that run. The hash is equal in every process and on
// every machine.
Result<Hash128> passes_hash(const PassOptions& options = {}, std::span<const Pass> passes = pass_list());

}  // namespace tessera
