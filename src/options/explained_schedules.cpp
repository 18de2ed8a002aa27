#include "tessera/options/explained_schedules.h"

#include <set>
#include <string>

#include "tessera/compile/fused/fusion_plan.h"
#include "tessera/engine/plan/profile_store.h"
#include "tessera/piecewise/splitter.h"
#include "tessera/runner/runner_spec.h"

namespace tessera {
namespace {

// Adds the keys of the row kernels that the fused compiler generates for the parts of the graph.
Status add_kernels(const RunnerSpec& spec, const ir::OpTable& ops, const RowKernelBuilder& builder,
                   std::set<std::string>& keys) {
  const StitchingGraph parts = TRY(split_graph(spec.graph, ops, spec.split_ops));
  for (const Part& part : parts.parts) {
    if (part.kind == Part::Kind::kSplitOp) continue;
    for (const FusionStep& step : TRY(plan_fusion(part.graph, ops)).steps)
      if (step.node == ir::kNoNode) keys.insert(row_kernel_key(builder, step.group.kernel));
  }
  return ok_status();
}

}  // namespace

Result<std::vector<ExplainedSchedule>> explained_schedules(const EngineOptions& options, const EnginePlan& plan,
                                                           const Device& device) {
  std::vector<ExplainedSchedule> explained;
  const RunnerOptions& runner = plan.runner;
  if (runner.compiler != kFusedCompiler && runner.decode_compiler != kFusedCompiler) return explained;
  const Result<const Backend*> backend = runner.registry->devices.backend(device.properties().type);
  if (!backend.ok() || (*backend)->row_kernels == nullptr) return explained;
  const auto known = ProfileStore(options, plan, device.properties()).load_schedules();
  if (known.empty()) return explained;
  std::set<std::string> keys;
  for (const RunnerSpec& spec : TRY(make_runner_specs(plan.graphs, runner)))
    TRY(add_kernels(spec, runner.registry->ops, (*backend)->row_kernels(), keys));
  for (const auto& [problem, measured] : known)
    if (keys.contains(problem.kernel)) explained.push_back({.rows = problem.rows, .measured = measured});
  return explained;
}

Json to_json(const std::vector<ExplainedSchedule>& schedules) {
  Json array = Json::array();
  for (const ExplainedSchedule& schedule : schedules) {
    Json us = Json::object();
    for (const auto& [number, time] : schedule.measured.us) us.set(std::to_string(number), time);
    Json json = Json::object();
    json.set("kernel", schedule.measured.name).set("rows", schedule.rows).set("chosen", schedule.measured.chosen);
    json.set("own", schedule.measured.us.front().first).set("us", std::move(us));
    array.push_back(std::move(json));
  }
  return array;
}

}  // namespace tessera
