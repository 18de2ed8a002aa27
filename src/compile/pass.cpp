#include "tessera/compile/pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "tessera/base/log.h"
#include "tessera/base/nearest.h"
#include "tessera/compile/passes/fold_constants.h"
#include "tessera/compile/passes/fuse_native_forms.h"
#include "tessera/compile/passes/merge_common_subexpressions.h"
#include "tessera/compile/passes/remove_copies.h"
#include "tessera/compile/passes/remove_dead_code.h"
#include "tessera/ir/verify.h"

namespace tessera {
namespace {

bool runs(const Pass& pass, const PassOptions& options) {
  return std::find(options.disabled.begin(), options.disabled.end(), pass.name) == options.disabled.end();
}

std::int64_t count_nodes(const ir::Graph& graph) { return static_cast<std::int64_t>(graph.nodes.size()); }

// Runs one pass, and replaces `graph` with the result.
Result<PassReport> run_one(const Pass& pass, ir::Graph& graph, const ir::OpTable& ops, const PassOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  PassReport report{.graph = graph.name, .pass = std::string(pass.name), .nodes_before = count_nodes(graph)};
  std::optional<ir::Graph> after = TRY(pass.run(graph, ops));
  report.changed = after.has_value();
  if (after) TRY(ir::verify(*after, ops).with_context("its result is broken"));
  report.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (options.observer) options.observer(pass.name, graph, after ? *after : graph);
  if (after) graph = *std::move(after);
  report.nodes_after = count_nodes(graph);
  log_debug("compile", "pass {} on {}: {}, {} -> {} nodes, {:.2f} ms", report.pass, report.graph,
            report.changed ? "changed" : "unchanged", report.nodes_before, report.nodes_after, report.ms);
  return report;
}

}  // namespace

std::span<const Pass> pass_list() {
  // remove_copies follows fold_constants, because folding leaves casts to the same type. Dead code is removed before
  // fusion, because a dead node that reads an inner value of a native form would prevent the fusion.
  static const std::array kPasses = {
      Pass{.name = "fold_constants",
           .summary = "folds chains of scale, cast or reshape by known numbers into one",
           .version = 1,
           .run = fold_constants},
      Pass{.name = "remove_copies",
           .summary = "removes copies, casts, views and scalings that change nothing",
           .version = 1,
           .run = remove_copies},
      Pass{.name = "merge_common_subexpressions",
           .summary = "computes a value once that is computed twice from the same contents",
           .version = 1,
           .run = merge_common_subexpressions},
      Pass{.name = "remove_dead_code",
           .summary = "removes nodes whose results are not needed, unless they write memory or meet other ranks",
           .version = 1,
           .run = remove_dead_code},
      Pass{.name = "fuse_native_forms",
           .summary = "replaces an operator's native form by the operator, and add by linear's bias or residual",
           .version = 2,
           .run = [](const ir::Graph& graph, const ir::OpTable& ops) { return fuse_native_forms(graph, ops); }},
  };
  return kPasses;
}

Status check_pass_names(std::span<const std::string> names, std::span<const Pass> passes) {
  std::vector<std::string_view> known;
  for (const Pass& pass : passes) known.push_back(pass.name);
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::vector<std::string> near = nearest_names(name, known, 1);
    return invalid_argument(fmt::format("no pass is called \"{}\"{}; there are {}", name,
                                        near.empty() ? "" : fmt::format(" (did you mean {}?)", near[0]),
                                        fmt::join(known, ", ")));
  }
  return ok_status();
}

Result<PassRun> run_passes(ir::Graph graph, const ir::OpTable& ops, const PassOptions& options) {
  return run_passes(std::move(graph), ops, options, pass_list());
}

Result<PassRun> run_passes(ir::Graph graph, const ir::OpTable& ops, const PassOptions& options,
                           std::span<const Pass> passes) {
  TRY(check_pass_names(options.disabled, passes));
  TRY(ir::verify(graph, ops).with_context("before the passes"));
  PassRun run{.graph = std::move(graph), .reports = {}};
  for (const Pass& pass : passes) {
    if (!runs(pass, options)) continue;
    Result<PassReport> report = run_one(pass, run.graph, ops, options);
    if (!report.ok())
      return std::move(report).status().with_context(fmt::format("pass {} on graph '{}'", pass.name, run.graph.name));
    run.reports.push_back(*std::move(report));
  }
  return run;
}

Result<Hash128> passes_hash(const PassOptions& options, std::span<const Pass> passes) {
  TRY(check_pass_names(options.disabled, passes));
  Hasher hasher;
  for (const Pass& pass : passes) {
    if (!runs(pass, options)) continue;
    hasher.add(pass.name);
    hasher.add(pass.version);
  }
  return hasher.finish();
}

}  // namespace tessera
