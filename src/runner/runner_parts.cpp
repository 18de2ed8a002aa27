#include "tessera/runner/runner_parts.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/base/progress.h"
#include "tessera/ops/comm/collective.h"
#include "tessera/runner/capture/graph_failure.h"
#include "tessera/runner/capture/make_executable.h"
#include "tessera/runner/memory/prediction.h"
#include "tessera/runner/ranks/rank_group.h"
#include "tessera/runner/verify/dummy_batch.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {
namespace {

// Returns the profile's name of a part: all pieces have one name, and each split operator has its own.
std::string profiled_name(const GraphRunner& runner, std::int64_t size, std::size_t part) {
  const std::span<const CompiledPart> parts = runner.executable().parts(runner.bucket(size));
  if (parts.size() == 1) return std::string(runner.name());
  if (parts[part].recordable()) return fmt::format("{} pieces", runner.name());
  return parts[part].program->instructions.front().call.op;
}

}  // namespace

RunnerParts::RunnerParts(ModelGraphs graphs_in, Weights weights_in, Device& device_in, RunnerOptions options_in)
    : device(device_in),
      options(std::move(options_in)),
      graphs(std::move(graphs_in)),
      weights(std::move(weights_in)),
      vocab_size(vocabulary_of(graphs)),
      hidden_size(*graphs.body.value(graphs.body.outputs[0]).type.shape.back().constant()) {}

RunnerParts::~RunnerParts() {
  // There is no caller left to handle an error.
  if (stream != nullptr) static_cast<void>(stream->synchronize());
}

Result<std::unique_ptr<RunnerParts>> RunnerParts::create(ModelGraphs graphs, Weights weights, Device& device,
                                                         RunnerOptions options) {
  std::unique_ptr<RunnerParts> parts(
      new RunnerParts(std::move(graphs), std::move(weights), device, std::move(options)));
  {
    const Timeline::Scope scope(parts->options.start, "memory");
    TRY(parts->allocate());
  }
  const Timeline::Scope scope(parts->options.start, "compile");
  TRY(parts->build_runners().with_context(kCompileContext));
  return parts;
}

int RunnerParts::ranks() const { return options.communicator == nullptr ? 1 : options.communicator->places(); }

Status RunnerParts::allocate() {
  stream = TRY(device.create_stream("main"));
  kv = std::make_unique<KvStorage>(TRY(KvStorage::create(graphs.body, options.num_pages, device, *stream)));
  edits = std::make_unique<EditBuffers>(TRY(EditBuffers::create(device, vocab_size)));
  embeddings = std::make_unique<EmbeddingRows>(TRY(EmbeddingRows::create(graphs.body, device)));
  TRY(embeddings->reserve(options.embedding_rows));

  // The share of the inputs follows that of the plans, so that the short lists of both are neighbours.
  step = std::make_unique<StepBuffer>();
  const auto planned = all_graphs(graphs);
  extend_context.limits = plan_limits(options);
  extend_context.communicator = options.communicator;
  extend_context.layers = graphs.layers;
  extend_context.states = &states;
  plans = std::make_unique<OpPlans>(TRY(OpPlans::create(device,
                                                        {.graphs = planned,
                                                         .kernels = *TRY(kernels_of(options, device)),
                                                         .limits = extend_context.limits,
                                                         .num_pages = options.num_pages},
                                                        *step)));
  plans->add_to(extend_context);
  inputs = std::make_unique<InputBuffers>(TRY(InputBuffers::create(device, input_limits(graphs, options), *step)));
  TRY(step->allocate(device, *stream));
  decode_context = extend_context;
  decode_context.batch_kind = BatchKind::kDecode;

  handed_over = TRY(tessera::handed_over(graphs, options));
  handed_over_bytes = TRY(tessera::handed_over_bytes(graphs, options));
  choice_logits_offset = TRY(tessera::choice_logits_offset(graphs, options));
  return ok_status();
}

ExecutionEnvironment RunnerParts::environment(BatchKind batches) {
  return {.device = device,
          .stream = *stream,
          .context = batches == BatchKind::kDecode ? decode_context : extend_context,
          .externals = externals,
          .arena = *arena,
          .workspace = *workspace,
          .warm = warm,
          .history = debug == nullptr ? nullptr : &debug->history(),
          .backend = options.registry->piecewise_backends.of(device.properties().type)};
}

Status RunnerParts::build_runners() {
  // Only address ranges are reserved here; the plans decide how much of them is used. An arena of fixed size has the
  // predicted size.
  std::int64_t arena_bytes = device.properties().memory_bytes;
  std::int64_t workspace_bytes = arena_bytes;
  if (!device.properties().arenas_grow) {
    const MemoryReport need = TRY(predict_memory(graphs, options, device));
    arena_bytes = need[MemoryUse::kArena];
    workspace_bytes = need[MemoryUse::kWorkspace];
  }
  arena = TRY(device.create_arena({.reserve_bytes = static_cast<std::size_t>(arena_bytes), .name = "arena"}));
  workspace =
      TRY(device.create_arena({.reserve_bytes = static_cast<std::size_t>(workspace_bytes), .name = "workspace"}));
  if (options.debug) debug = std::make_unique<DebugMode>(*stream, *arena, ranks());
  for (const auto& [name, address] : weights.addresses()) externals.add(name, address);
  kv->add_to(externals);
  inputs->add_to(externals);
  edits->add_to(externals);
  embeddings->add_to(externals);
  for (const HandedOver& value : handed_over) {
    if (externals.contains(value.name))
      return invalid_argument(
          fmt::format("the body's %{} has the name of an input or a weight; another is needed", value.name));
    externals.add(value.name, arena->base() + value.offset);
  }
  externals.add(std::string(input_names::kChoiceLogits), arena->base() + choice_logits_offset);

  // All ranks of a stage compile the same programs.
  const bool is_logged = options.communicator == nullptr || options.communicator->place() == 0;
  std::vector<RunnerSpec> specs = TRY(make_runner_specs(graphs, options));
  Progress progress("Compiling graphs", std::ssize(specs), "graphs", options.show_progress);
  for (RunnerSpec& spec : specs) {
    std::unique_ptr<Executable> made =
        TRY(make_executable(spec, options, environment(spec.batches), options.memory_plan, is_logged));
    runners.emplace_back(std::move(spec), std::move(made));
    progress.advance(1);
  }
  TRY(build_vision());
  predicted = TRY(predict_memory(runners, graphs, options, device, PredictionDetail::kTotals));
  if (vision != nullptr)
    TRY(add_vision(vision->runner(), vision->input_bytes(), device.properties(), PredictionDetail::kTotals, predicted));
  return ok_status();
}

Status RunnerParts::build_vision() {
  if (!graphs.vision) return ok_status();
  vision = TRY(VisionRunner::create({.tower = *graphs.vision,
                                     .weights = weights.addresses(),
                                     .device = device,
                                     .stream = *stream,
                                     .arena = *arena,
                                     .workspace = *workspace,
                                     .warm = warm,
                                     .options = options},
                                    options.vision));
  return ok_status();
}

Status RunnerParts::stage(const StagedTokens& tokens, BatchKind kind, std::int64_t padded_tokens) {
  {
    const StepProfiler::Scope planning(profiler, HostWork::kPlan);
    TRY(plans->plan(tokens.batch, kind, padded_tokens, *stream));
  }
  const StepProfiler::Scope staging(profiler, HostWork::kInputs);
  return inputs->stage_tokens(tokens, padded_tokens);
}

Status RunnerParts::stage_dummy(const GraphRunner& runner, std::int64_t size) {
  const ir::Bucket bucket = runner.bucket(size);
  const bool decode = bucket[ir::Symbol::kRequests] > 0;
  const ForwardBatch batch = dummy_batch(size, decode, options, graphs.body.cache_groups, vocab_size);
  TRY(stage({.batch = batch}, runner.spec().batches, bucket[ir::Symbol::kTokens]));
  if (const std::int64_t rows = bucket[ir::Symbol::kRows]; rows > 0) TRY(inputs->stage_rows({}, {}, rows));
  return upload();
}

Status RunnerParts::stage_pages(std::int64_t size) {
  const std::optional<ForwardBatch> batch = page_batch(size, options, graphs.body.cache_groups);
  if (!batch) return internal_error(fmt::format("{} tokens cannot share a page", size));
  TRY(stage({.batch = *batch}, BatchKind::kExtend, size));
  return upload();
}

Status RunnerParts::together(const RankOrder& order, const std::function<Status()>& local) {
  return options.ranks == nullptr ? local() : options.ranks->together(order, local);
}

Status RunnerParts::capture(GraphRunner& runner, std::int64_t size) {
  const auto here = [&] {
    return runner.capture_one(size, [&](std::int64_t staged) { return stage_dummy(runner, staged); });
  };
  Status captured = together({.kind = RankOrderKind::kCapture, .role = runner.spec().role, .size = size}, here);
  if (!captured.ok() && captured.code() != StatusCode::kDeviceLost && options.ranks != nullptr)
    TRY(drop(runner, size, captured));
  return captured;
}

Status RunnerParts::drop(GraphRunner& runner, std::int64_t size, const Status& why) {
  return together({.kind = RankOrderKind::kDrop, .role = runner.spec().role, .size = size}, [&]() -> Status {
    if (runner.captured(size)) runner.drop(size, why);
    return ok_status();
  });
}

Status RunnerParts::upload() {
  const StepProfiler::Scope staging(profiler, HostWork::kInputs);
  return step->upload(*stream);
}

Status RunnerParts::enqueue(GraphRunner& runner, std::int64_t size, Execution how) {
  const bool full = how == Execution::kFullGraph;
  if (profiler == nullptr) {
    if (how == Execution::kOperators) return runner.run(size);
    return runner.replay(size, full ? GraphForm::kFull : GraphForm::kPieces);
  }
  const StepProfiler::Scope launching(profiler, HostWork::kLaunch);
  TRY(profiler->begin_device());
  if (full) {
    TRY(runner.replay(size, GraphForm::kFull));
    return profiler->mark(fmt::format("{} as one graph", runner.name()));
  }
  return runner.executable().run_in_parts(runner.bucket(size), how == Execution::kGraphs, [&](std::size_t part) {
    return profiler->mark(profiled_name(runner, size, part));
  });
}

Status RunnerParts::launch(GraphRunner& runner, std::int64_t size, std::int64_t real_rows, Execution how,
                           bool* replay_failed) {
  TRY(upload());
  if (debug != nullptr) TRY(debug->before(runner, size));
  Status launched = enqueue(runner, size, how);
  if (replay_failed != nullptr) *replay_failed = how != Execution::kOperators && !launched.ok();
  TRY(std::move(launched));
  return debug == nullptr ? ok_status() : debug->after(runner, size, real_rows);
}

Status RunnerParts::check_fresh(const OutputView& view) const {
  return debug == nullptr ? ok_status() : debug->history().check_fresh(view);
}

}  // namespace tessera
