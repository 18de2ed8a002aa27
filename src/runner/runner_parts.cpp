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
  const RunnerOptions& options = model.options;
  const ModelGraphs& graphs = model.graphs;
  Device& device = model.device;
  stream_ = TRY(device.create_stream("main"));
  kv_ = std::make_unique<KvStorage>(TRY(KvStorage::create(cached_graphs(graphs), options.num_pages, device, *stream_)));
  edits_ = std::make_unique<EditBuffers>(TRY(EditBuffers::create(device, model.vocab_size)));
  embeddings_ = std::make_unique<EmbeddingRows>(TRY(EmbeddingRows::create(graphs.body, device)));
  TRY(embeddings_->reserve(options.embedding_rows));
  if (graphs.draft) draft_hidden_ = std::make_unique<DraftHidden>(TRY(DraftHidden::create(graphs.draft->body, device)));
  if (graphs.draft && !graphs.draft->target_ids.empty())
    target_ids_ = TRY(TargetIds::create(graphs.draft->target_ids, device, *stream_));
  if (graphs.adapted) adapters_ = TRY(AdapterTables::create(graphs.adapted->layout, device, *stream_));

  // The plans reserve their part of the step buffer before the inputs do. The short lists of the plans then lie next to
  // the short row inputs at the beginning of the inputs' part, and StepBuffer::upload() can copy both as one range.
  step_ = std::make_unique<StepBuffer>();
  const auto planned = all_graphs(graphs);
  extend_context_.limits = plan_limits(options);
  extend_context_.communicator = options.communicator;
  extend_context_.layers = graphs.layers;
  extend_context_.states = &states_;
  const KernelTable* kernels = TRY(kernels_of(options, device));
  plans_ = std::make_unique<OpPlans>(TRY(OpPlans::create(
      device,
      {.graphs = planned, .kernels = *kernels, .limits = extend_context_.limits, .num_pages = options.num_pages},
      *step_)));
  plans_->add_to(extend_context_);
  inputs_ = std::make_unique<InputBuffers>(TRY(InputBuffers::create(device, input_limits(graphs, options), *step_)));
  TRY(step_->allocate(device, *stream_));
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
  kv_->add_to(externals_);
  inputs_->add_to(externals_);
  edits_->add_to(externals_);
  embeddings_->add_to(externals_);
  if (draft_hidden_ != nullptr) draft_hidden_->add_to(externals_);
  if (target_ids_ != nullptr) target_ids_->add_to(externals_);
  if (adapters_ != nullptr) adapters_->add_to(externals_);
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
  TRY(build_vision());
  const DeviceProperties& device = model.device.properties();
  predicted_ = TRY(predict_memory(runners_, model.graphs, options, model.device, PredictionDetail::kTotals));
  if (vision_ != nullptr)
    TRY(add_vision(vision_->runner(), vision_->input_bytes(), device, PredictionDetail::kTotals, predicted_));
  return ok_status();
}

Status RunnerParts::build_vision() {
  if (!model.graphs.vision) return ok_status();
  vision_ = TRY(VisionRunner::create({.tower = *model.graphs.vision,
                                      .weights = model.weights.addresses(),
                                      .device = model.device,
                                      .stream = *stream_,
                                      .arena = *arena_,
                                      .workspace = *workspace_,
                                      .warm = warm_,
                                      .options = model.options},
                                     model.options.vision));
  return ok_status();
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
  AdapterTables& tables = *adapters_;
  const auto local = [&] { return tables.write(slot, adapter->share(tables.layout().rank()), *stream_); };
  return model.options.ranks == nullptr ? local() : model.options.ranks->write_adapter(slot, adapter, local);
}

}  // namespace tessera
