#include "tessera/engine/plan/graph_export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "tessera/base/hash.h"
#include "tessera/base/write_file.h"
#include "tessera/ir/text.h"
#include "tessera/model/weights/model_path.h"
#include "tessera/piecewise/chain.h"
#include "tessera/piecewise/splitter.h"
#include "tessera/runner/drafts/draft_graphs.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

void add(std::vector<NamedGraph>& graphs, std::string name, const ir::Graph& graph, const ir::OpTable& ops) {
  graphs.push_back({.name = std::move(name), .graph = graph, .text = ir::to_text(graph), .picture = {}});
  graphs.back().picture.ops = &ops;
}

// Adds the prefill graph with its parts drawn as clusters, and then each part as a graph of its own.
Status add_stitched(const EnginePlan& plan, std::vector<NamedGraph>& graphs) {
  const ir::OpTable& ops = plan.runner.registry->ops;
  const StitchingGraph stitching = TRY(split_graph(plan.graphs.prefill_body(), ops, plan.runner.split_ops));
  add(graphs, "stitched", plan.graphs.prefill_body(), ops);
  graphs.back().text = to_text(stitching);
  ir::PictureOptions& picture = graphs.back().picture;
  for (const Part& part : stitching.parts) {
    picture.cluster_of_node.insert(picture.cluster_of_node.end(), part.graph.nodes.size(),
                                   static_cast<int>(picture.clusters.size()));
    picture.clusters.push_back({.title = part.name, .is_split = part.kind == Part::Kind::kSplitOp});
  }
  for (std::size_t i = 0; i < stitching.parts.size(); ++i)
    add(graphs, fmt::format("{}", i), stitching.parts[i].graph, ops);
  return ok_status();
}

// Adds the graphs before and after each pass. The plan has only the graphs after all passes, so this function builds
// the model again and repeats the passes.
Status add_passes(const EnginePlan& plan, std::span<const std::string> disabled, std::vector<NamedGraph>& graphs) {
  const Registry& registry = *plan.runner.registry;
  ModelGraphs made = TRY(build_model(plan.config, plan.model, registry.ops, registry.families));
  const std::pair<const char*, ir::Graph*> before[] = {
      {"body", &made.body}, {"head", &made.head}, {"sampler", &made.sampler}};
  for (const auto& [name, graph] : before) {
    std::vector<NamedGraph> changed =
        TRY(graphs_of_passes(std::move(*graph), name, registry.ops, disabled, registry.passes));
    std::move(changed.begin(), changed.end(), std::back_inserter(graphs));
  }
  return ok_status();
}

bool is_part(const std::string& name) { return name.find_first_not_of("0123456789") == std::string::npos; }

// Turns "pass:x:body:before" into "pass.x.body.before", and "3" into "part.03".
std::string file_name(std::string name) {
  if (is_part(name)) return fmt::format("part.{:0>2}", name);
  std::replace(name.begin(), name.end(), ':', '.');
  return name;
}

}  // namespace

Result<std::vector<NamedGraph>> graphs_of(const EnginePlan& plan, std::span<const std::string> disabled_passes) {
  const ModelGraphs& of = plan.graphs;
  const ir::OpTable& ops = plan.runner.registry->ops;
  std::vector<NamedGraph> graphs;
  add(graphs, "body", of.body, ops);
  add(graphs, "head", of.head, ops);
  add(graphs, "sampler", of.sampler, ops);
  add(graphs, "choose", of.choose, ops);
  add(graphs, "logprobs", of.logprobs, ops);
  const ir::Graph decode = TRY(chain("decode", std::vector{&of.body, &of.head, &of.sampler}));
  add(graphs, "decode", decode, ops);
  add(graphs, "prefill", of.prefill_body(), ops);
  add(graphs, "prefill_head", of.prefill_head(), ops);
  if (of.vision) add(graphs, "tower", of.vision->graph, ops);
  if (of.draft) {
    add(graphs, "draft", of.draft->body, ops);
    const ir::Graph head = TRY(make_draft_head(*of.draft, ops));
    add(graphs, "draft_head", head, ops);
    add(graphs, "draft_decode", TRY(make_draft_decode(*of.draft, head)), ops);
  }
  TRY(add_stitched(plan, graphs));
  TRY(add_passes(plan, disabled_passes, graphs));
  return graphs;
}

Result<std::vector<NamedGraph>> graphs_of_passes(ir::Graph graph, std::string_view name, const ir::OpTable& ops,
                                                 std::span<const std::string> disabled, std::span<const Pass> passes) {
  std::vector<NamedGraph> graphs;
  const auto observer = [&](std::string_view pass, const ir::Graph& before, const ir::Graph& after) {
    if (ir::structurally_equal(before, after)) return;
    add(graphs, fmt::format("pass:{}:{}:before", pass, name), before, ops);
    add(graphs, fmt::format("pass:{}:{}:after", pass, name), after, ops);
  };
  TRY(run_passes(std::move(graph), ops, {.disabled = {disabled.begin(), disabled.end()}, .observer = observer},
                 passes));
  return graphs;
}

Result<std::vector<const NamedGraph*>> find_graphs(std::span<const NamedGraph> graphs, std::string_view name,
                                                   std::span<const Pass> passes) {
  constexpr std::string_view kPass = "pass:";
  const bool pass_wanted = name.starts_with(kPass);
  const std::string prefix = fmt::format("{}:", name);
  std::vector<const NamedGraph*> found;
  for (const NamedGraph& graph : graphs)
    if (graph.name == name || (pass_wanted && graph.name.starts_with(prefix))) found.push_back(&graph);
  if (!found.empty()) return found;

  for (const Pass& pass : passes) {
    if (pass_wanted && name.substr(kPass.size()) == pass.name)
      return invalid_argument(fmt::format("the pass {} changes no graph of this model", pass.name));
  }
  std::vector<std::string> names;
  std::ptrdiff_t parts = 0;
  for (const NamedGraph& graph : graphs) {
    if (is_part(graph.name)) {
      ++parts;
    } else if (!graph.name.starts_with(kPass)) {
      names.push_back(graph.name);
    }
  }
  for (const Pass& pass : passes) names.push_back(fmt::format("{}{}", kPass, pass.name));
  return invalid_argument(fmt::format("\"{}\" is no graph of this model; there are {}, and 0 to {}, its parts", name,
                                      fmt::join(names, ", "), parts - 1));
}

Status export_graphs(std::span<const NamedGraph> graphs, const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return not_found(fmt::format("{} cannot be made: {}", folder, error.message()));
  for (const NamedGraph& graph : graphs) {
    const std::string file = (fs::path(folder) / file_name(graph.name)).string();
    TRY(write_file(file + ".txt", graph.text));
    TRY(write_file(file + ".dot", ir::to_dot(graph.graph, graph.picture)));
    TRY(write_file(file + ".svg", ir::to_svg(graph.graph, graph.picture)));
  }
  return ok_status();
}

std::string debug_export_folder(const EngineOptions& options, std::span<const NamedGraph> graphs) {
  Hasher hash;
  for (const NamedGraph& graph : graphs) hash.add(graph.text);
  std::error_code unknown;  // if the current folder is gone, the path is used as given
  const fs::path given = model_folder(options.model_path);
  const fs::path absolute = fs::absolute(given, unknown);
  const fs::path model = (unknown ? given : absolute).lexically_normal();
  const fs::path name = model.has_filename() ? model.filename() : model.parent_path().filename();
  return (fs::path(options.cache_dir) / "torch_compile_cache" /
          fmt::format("{}-{}", name.string(), hash.finish().hex().substr(0, 12)))
      .string();
}

}  // namespace tessera
