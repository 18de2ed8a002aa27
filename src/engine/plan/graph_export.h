// Exports all forms of a plan's graphs: the plan's own graphs; each graph before and after every pass that changes it;
// one graph ("decode") that joins the body, the head and the sampler; the prefill graph divided into parts
// ("stitched"); and each part alone. The plan of a checkpoint that is not quantised needs only config.json.
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
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/ir/picture.h"

namespace tessera {

struct NamedGraph {
  // The name: "body", "head", "sampler", "choose", "logprobs", "decode", "prefill", "prefill_head" or "stitched". If
  // the model has a vision tower, also "tower". If it has a layer that drafts, also "draft", "draft_head" and
  // "draft_decode". The parts of the stitched graph are named by their indices: "0", "1" and so on.
  // "pass:remove_dead_code:body:before" and "…:after" are the graph "body" before and after that pass.
  std::string name;
  ir::Graph graph;
  std::string text;                 // the text form; the stitched graph has the text of its parts
  ir::PictureOptions picture = {};  // borrows the operators of the plan's registry
};

// Returns all graphs of the plan. Precondition: `disabled_passes` were disabled when the plan was made.
Result<std::vector<NamedGraph>> graphs_of(const EnginePlan& plan, std::span<const std::string> disabled_passes);

// Returns "pass:<pass>:<name>:before" and "…:after" for each pass that changes the graph.
Result<std::vector<NamedGraph>> graphs_of_passes(ir::Graph graph, std::string_view name, const ir::OpTable& ops,
                                                 std::span<const std::string> disabled,
                                                 std::span<const Pass> passes = pass_list());

// Returns all graphs whose name is `name`, or begins with `name` and a colon. "pass:remove_dead_code", for example,
// finds at least two graphs. Returns kInvalidArgument if there are none. The message then lists the existing names, or
// says that the pass changes nothing.
Result<std::vector<const NamedGraph*>> find_graphs(std::span<const NamedGraph> graphs, std::string_view name,
                                                   std::span<const Pass> passes = pass_list());

// Writes each graph as text, DOT and SVG to `folder`, which is created. Overwrites files of the same names. The error
// names what could not be written.
Status export_graphs(std::span<const NamedGraph> graphs, const std::string& folder);

// Returns the folder of debug mode's export: <cache_dir>/torch_compile_cache/<model>-<hash of its graphs>.
std::string debug_export_folder(const EngineOptions& options, std::span<const NamedGraph> graphs);

}  // namespace tessera
