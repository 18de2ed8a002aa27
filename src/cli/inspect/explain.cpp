#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tessera/base/write_file.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/inspect/explanation_text.h"
#include "tessera/cli/inspect/shown_graphs.h"
#include "tessera/cli/inspect/shown_programs.h"
#include "tessera/cli/output.h"
#include "tessera/cli/suggest_tokens.h"
#include "tessera/engine/plan/rank_places.h"

namespace tessera::cli {
namespace {

// Returns the text of the plan, or of the requested graph. The picture formats always show a graph.
Result<std::string> answer(const Explanation& explanation, const std::vector<NamedGraph>& graphs,
                           const ExplainOptions& options) {
  if (names_program(options.graph)) {
    const std::unique_ptr<Device> device = TRY(open_device(options.engine));
    return shown_program(explanation.plan, *device, options.graph).with_context("--graph");
  }
  const bool picture = options.format == ExplainFormat::kDot || options.format == ExplainFormat::kSvg;
  if (picture || !options.graph.empty()) {
    const std::string name = options.graph.empty() ? "stitched" : options.graph;
    const std::vector<Pass>& passes = options.engine.registry->passes;
    return shown_graphs(TRY(find_graphs(graphs, name, passes).with_context("--graph")), options.format);
  }
  return options.format == ExplainFormat::kJson ? to_json(explanation).dump() + "\n" : to_text(explanation);
}

Status write_answer(const std::string& text, const ExplainOptions& options) {
  return options.output.empty() ? write_output(text) : write_file(options.output, text);
}

}  // namespace

Status run_explain(const ExplainOptions& options, std::span<const FlagValue> flags) {
  if (!options.suggest_tokens.empty()) {
    const TokenSuggestion suggestion = TRY(suggest_tokens(options.suggest_tokens, options.engine));
    const bool json = options.format == ExplainFormat::kJson;
    return write_answer(json ? to_json(suggestion).dump() + "\n" : to_text(suggestion), options);
  }
  const Explanation explanation = TRY(explain(options.engine, options.num_tokens, flags));
  const std::vector<NamedGraph> named = TRY(graphs_of(explanation.plan, options.engine.graphs.disabled_passes));
  const std::string text = TRY(answer(explanation, named, options));
  if (!options.export_folder.empty()) TRY(export_graphs(named, options.export_folder));
  TRY(write_answer(text, options));
  const GraphSwitches& graphs = explanation.plan.runner.graphs;
  if (graphs.prefill && !explanation.plan.runner.prefill_sizes.empty()) return ok_status();
  // If a rule turned graphs off, `messages` says so. Otherwise graphs are off because no size fits into the memory for
  // graphs, and a note of the plan says so.
  const std::vector<std::string>& why = graphs.messages.empty() ? explanation.plan.notes : graphs.messages;
  return failed_precondition(fmt::format("piecewise graphs are off: {}", fmt::join(why, "; ")));
}

}  // namespace tessera::cli
