// Exports the graphs of a plan in all their forms: as the model builds them, before and after each pass that changes
// them, chained, stitched, and each part alone. Needs config.json alone.
//
//   std::vector<NamedGraph> graphs = TRY(graphs_of(plan, options.graphs.disabled_passes));
//   TRY(export_graphs(graphs, "graphs"));   // graphs/body.txt, graphs/body.dot, graphs/body.svg, …
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/pass.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/ir/picture.h"

namespace tessera {

struct NamedGraph {
  // "body" "head" "sampler" "choose" "logprobs" "decode" "prefill" "prefill_head" "tower" (of a model that sees)
  // "stitched"; "0" is a part of it;
  // "pass:remove_dead_code:body:before" and "…:after".
  std::string name;
  ir::Graph graph;
  std::string text;                 // the text form; of the stitched graph its parts
  ir::PictureOptions picture = {};  // borrows the operators of the plan's registry
};

// All graphs of a plan that was made without `disabled_passes`.
Result<std::vector<NamedGraph>> graphs_of(const EnginePlan& plan, std::span<const std::string> disabled_passes);

// "pass:<pass>:<name>:before" and "…:after" of each pass that changes the graph.
Result<std::vector<NamedGraph>> graphs_of_passes(ir::Graph graph, std::string_view name, const ir::OpTable& ops,
                                                 std::span<const std::string> disabled,
                                                 std::span<const Pass> passes = pass_list());

// All whose name is `name`, or begins with it and a colon: "pass:remove_dead_code" is at least two. kInvalidArgument
// where there are none, with the names that exist, or with the pass that changes nothing.
Result<std::vector<const NamedGraph*>> find_graphs(std::span<const NamedGraph> graphs, std::string_view name,
                                                   std::span<const Pass> passes = pass_list());

// Text, DOT and SVG of each in `folder`, which is made; files of the same names are overwritten. The error names what
// could not be written.
Status export_graphs(std::span<const NamedGraph> graphs, const std::string& folder);

// <cache_dir>/torch_compile_cache/<model>-<hash of its graphs>: where debug mode writes them.
std::string debug_export_folder(const EngineOptions& options, std::span<const NamedGraph> graphs);

}  // namespace tessera
