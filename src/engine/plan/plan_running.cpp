// The steps of a plan that decide how forwards run: steps, compilers, graphs and their cuts.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "tessera/engine/plan/plan_steps.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/piecewise/split_ops.h"
#include "tessera/runner/memory/layer_caches.h"
#include "tessera/runner/runner_spec.h"

namespace tessera {

Status choose_running(PlanDraft& draft) {
  const EngineOptions& options = draft.options;
  const bool on_host = draft.properties().on_host;
  // On a CPU a forward has finished when enqueueing returns, so overlap would gain nothing, and ends of requests would
  // be noticed a step late. A pipeline overlaps steps on any device, because its stages run at the same time. The steps
  // of a pipeline are not delayed, because its first stage is already idle while the last stage ends a step.
  const bool stages = has_stages(options);
  StepOrder& steps = draft.plan.steps;
  steps.overlap = options.overlap_schedule.value_or(!on_host || stages);
  steps.paced = steps.overlap && !stages;

  RunnerOptions& runner = draft.plan.runner;
  runner.registry = options.registry;
  runner.memory_plan = options.memory_plan;
  runner.decode_padding = !options.graphs.disable_cuda_graph_padding;
  runner.show_progress = options.show_progress;
  runner.max_in_flight = most_in_flight(options);
  steps.turns = stages ? runner.max_in_flight : 1;
  runner.deterministic = options.deterministic;
  if (options.two_batch_overlap && exchanges_rows(options)) runner.halves_from = options.two_batch_least_tokens;
  const bool alike = dispatches_alike(options);
  runner.capture = options.graphs.capture.value_or(on_host || alike ? CaptureMode::kEager : CaptureMode::kCore);
  // If all ranks must dispatch alike, no rank measures costs, because ranks with different measurements would choose
  // different graphs.
  runner.measure_costs = options.graphs.measure_costs && !options.deterministic && !alike;
  runner.debug = options.graphs.debug;
  return ok_status();
}

Status choose_compilers(PlanDraft& draft) {
  const GraphOptions& graphs = draft.options.graphs;
  RunnerOptions& runner = draft.plan.runner;
  runner.compiler = graphs.compiler;
  if (graphs.torch_compile) {
    runner.decode_compiler = kFusedCompiler;
    runner.decode_compiler_max = graphs.torch_compile_max_batch;
  }
  runner.cache_dir = draft.options.cache_dir;
  runner.programs = std::make_shared<ProfileCache>(ProfileCacheOptions{.root = runner.cache_dir});
  return runner.registry->compilers.check(runner.compiler).with_context("piecewise_cuda_graph_compiler");
}

Status choose_graphs(PlanDraft& draft) {
  const GraphOptions& graphs = draft.options.graphs;
  EnginePlan& plan = draft.plan;
  const LayerCaches caches = layer_caches(plan.graphs.body, plan.graphs.own_layers);
  plan.runner.graphs = apply_rules({.mode = graphs.mode,
                                    .disable_cuda_graph = graphs.disable_cuda_graph,
                                    .disable_piecewise_cuda_graph = graphs.disable_piecewise_cuda_graph,
                                    .enforce_piecewise_cuda_graph = graphs.enforce_piecewise_cuda_graph,
                                    .generates = plan.generates(),
                                    .architecture = plan.config.architecture,
                                    .standard_gqa = caches.standard_gqa,
                                    .undeclared_layers = caches.undeclared});
  // A budget covers only the graphs of the plan. Full graphs are added after measurements, so a budget turns them off.
  plan.runner.choose_full = graphs.mode == GraphMode::kFullAndPiecewise && graphs.memory_budget == 0;
  const std::vector<std::string>& messages = plan.runner.graphs.messages;
  plan.notes.insert(plan.notes.end(), messages.begin(), messages.end());
  const auto& backend = draft.options.registry->piecewise_backends.of(draft.properties().type);
  if (std::string note = backend.note(); !note.empty()) plan.notes.push_back(std::move(note));
  return ok_status();
}

Status choose_cuts(PlanDraft& draft) {
  const std::vector<std::string>& given = draft.options.graphs.split_ops;
  RunnerOptions& runner = draft.plan.runner;
  const auto& ops = draft.options.registry->ops;
  if (!runner.graphs.prefill_whole) {
    runner.split_ops = given.empty() ? default_split_ops(ops)
                                     : TRY(resolve_split_ops(ops, given).with_context("cuda_graph_split_ops"));
  }
  // With two-batch overlap, exchanges are no split operators. An exchange of one half runs at the same time as kernels
  // of the other half, so both must be in one piece.
  if (runner.halves_from > 0 && given.empty())
    std::erase_if(runner.split_ops, [&ops](const std::string& name) {
      const ir::OpDecl* op = ops.find(name);
      return op != nullptr && op->rows == ir::RowUse::kExchange;
    });
  return ok_status();
}

Status note_halves(PlanDraft& draft) {
  const RunnerOptions& runner = draft.plan.runner;
  if (runner.halves_from > max_padded_tokens(runner))
    draft.plan.notes.push_back(
        fmt::format("two-batch overlap has no effect: no forward has {} tokens; chunked_prefill_size is {}",
                    runner.halves_from, runner.max_tokens));
  return ok_status();
}

}  // namespace tessera
