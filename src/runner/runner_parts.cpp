#include "tessera/runner/runner_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tessera/base/progress.h"
#include "tessera/model/adapters/adapter.h"
#include "tessera/runner/capture/graph_failure.h"
#include "tessera/runner/graphs/make_executable.h"
#include "tessera/runner/memory/prediction.h"
#include "tessera/runner/ranks/rank_group.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {

RunnerParts::RunnerParts(RunnerModel made) : model(std::move(made)) {}

RunnerParts::~RunnerParts() {
  // A destructor has no caller that could handle an error.
  if (stream_ != nullptr) static_cast<void>(stream_->synchronize());
}

Result<std::unique_ptr<RunnerParts>> RunnerParts::create(ModelGraphs graphs, Weights weights, Device& device,
                                                         RunnerOptions options) {
  RunnerModel made = TRY(RunnerModel::create(std::move(graphs), std::move(weights), device, std::move(options)));
  std::unique_ptr<RunnerParts> parts(new RunnerParts(std::move(made)));
  {
    const Timeline::Scope scope(parts->model.options.start, "memory");
    TRY(parts->allocate());
  }
  const Timeline::Scope scope(parts->model.options.start, "compile");
  TRY(parts->build_runners().with_context(kCompileContext));
  return parts;
}

Status RunnerParts::allocate() {
  stream_ = TRY(model.device.create_stream("main"));
  memory_ = TRY(StepMemory::create(model, *stream_));
  extend_context_.limits = plan_limits(model.options);
  extend_context_.communicator = model.options.communicator;
  extend_context_.layers = model.graphs.layers;
  extend_context_.states = &states_;
  memory_->plans.add_to(extend_context_);
  decode_context_ = extend_context_;
  decode_context_.batch_kind = BatchKind::kDecode;
  return ok_status();
}

const GraphRunner* RunnerParts::find_runner(RunnerRole role) const {
  const auto found = std::ranges::find(runners_, role, [](const GraphRunner& runner) { return runner.spec().role; });
  return found == runners_.end() ? nullptr : &*found;
}

GraphRunner* RunnerParts::find_runner(RunnerRole role) {
  const auto found = std::ranges::find(runners_, role, [](const GraphRunner& runner) { return runner.spec().role; });
  return found == runners_.end() ? nullptr : &*found;
}

ExecutionEnvironment RunnerParts::environment(BatchKind batches) {
  return {.device = model.device,
          .stream = *stream_,
          .context = batches == BatchKind::kDecode ? decode_context_ : extend_context_,
          .externals = externals_,
          .arena = *arena_,
          .workspace = *workspace_,
          .warm = warm_,
          .history = debug_ == nullptr ? nullptr : &debug_->history(),
          .backend = model.options.registry->piecewise_backends.of(model.device.properties().type)};
}

// Reserves only address ranges. The memory plans decide later how much of each range gets memory. If arenas cannot
// grow, each gets the predicted size.
Status RunnerParts::reserve_arenas() {
  Device& device = model.device;
  std::int64_t arena_bytes = device.properties().memory_bytes;
  std::int64_t workspace_bytes = arena_bytes;
  if (!device.properties().arenas_grow) {
    const MemoryReport need = TRY(predict_memory(model.graphs, model.options, device));
    arena_bytes = need[MemoryUse::kArena];
    workspace_bytes = need[MemoryUse::kWorkspace];
  }
  arena_ = TRY(device.create_arena({.reserve_bytes = static_cast<std::size_t>(arena_bytes), .name = "arena"}));
  workspace_ =
      TRY(device.create_arena({.reserve_bytes = static_cast<std::size_t>(workspace_bytes), .name = "workspace"}));
  return ok_status();
}

Status RunnerParts::name_externals() {
  for (const auto& [name, address] : model.weights.addresses()) externals_.add(name, address);
  memory_->add_to(externals_);
  for (const HandedOver& value : model.handed_over) {
    if (externals_.contains(value.name))
      return invalid_argument(
          fmt::format("the body's %{} has the name of an input or a weight; another is needed", value.name));
    externals_.add(value.name, arena_->base() + value.offset);
  }
  externals_.add(std::string(input_names::kChoiceLogits), arena_->base() + model.choice_logits_offset);
  return ok_status();
}

Status RunnerParts::build_runners() {
  const RunnerOptions& options = model.options;
  TRY(reserve_arenas());
  if (options.debug) debug_ = std::make_unique<DebugMode>(*stream_, *arena_, options.runs_alone());
  TRY(name_externals());
  // All devices of a stage compile the same programs, so not every device logs them.
  std::vector<RunnerSpec> specs = TRY(make_runner_specs(model.graphs, options));
  Progress progress("Compiling graphs", std::ssize(specs), "graphs", options.show_progress);
  for (RunnerSpec& spec : specs) {
    std::unique_ptr<Executable> made =
        TRY(make_executable(spec, options, environment(spec.batches), options.memory_plan, options.logs_common_work()));
    runners_.emplace_back(std::move(spec), std::move(made));
    progress.advance(1);
  }
  if (model.graphs.vision) vision_ = TRY(make_vision(options.vision));
  const DeviceProperties& device = model.device.properties();
  predicted_ = TRY(predict_memory(runners_, model.graphs, options, model.device, PredictionDetail::kTotals));
  if (vision_ != nullptr)
    TRY(add_vision(vision_->runner(), vision_->input_bytes(), device, PredictionDetail::kTotals, predicted_));
  return ok_status();
}

Result<std::unique_ptr<VisionRunner>> RunnerParts::make_vision(VisionOptions options) {
  return VisionRunner::create({.tower = *model.graphs.vision,
                               .weights = model.weights.addresses(),
                               .device = model.device,
                               .stream = *stream_,
                               .arena = *arena_,
                               .workspace = *workspace_,
                               .warm = warm_,
                               .options = model.options},
                              std::move(options));
}

std::int64_t RunnerParts::available_bytes() const {
  const std::int64_t own = model.device.available_bytes();
  if (model.options.ranks == nullptr) return own;
  const Result<std::int64_t> least = model.options.ranks->least({.kind = RankOrderKind::kAvailable}, own);
  return least.ok() ? *least : 0;
}

Status RunnerParts::together(const RankOrder& order, const std::function<Status()>& local) {
  return model.options.ranks == nullptr ? local() : model.options.ranks->together(order, local);
}

Status RunnerParts::write_adapter(std::int64_t slot, const std::shared_ptr<const Adapter>& adapter) {
  AdapterTables& tables = *memory_->adapters;
  const auto local = [&] { return tables.write(slot, adapter->share(tables.layout().rank()), *stream_); };
  return model.options.ranks == nullptr ? local() : model.options.ranks->write_adapter(slot, adapter, local);
}

}  // namespace tessera
