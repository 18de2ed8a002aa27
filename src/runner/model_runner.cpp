#include "tessera/runner/model_runner.h"

#include <utility>

#include "tessera/runner/memory/measure_memory.h"
#include "tessera/runner/ranks/rank_order.h"
#include "tessera/runner/steps/step_ways.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {

ModelRunner::ModelRunner(std::unique_ptr<RunnerParts> parts)
    : parts_(std::move(parts)),
      step_(*parts_),
      captures_(*parts_, step_.launcher()),
      dispatcher_(*parts_, captures_),
      draft_(*parts_, step_.launcher(), captures_, dispatcher_),
      capture_(*parts_, captures_, dispatcher_, step_),
      measurement_(*parts_, step_.launcher(), dispatcher_),
      full_measurement_(*parts_, step_.launcher(), captures_, dispatcher_) {}

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(ModelGraphs graphs, Weights weights, Device& device,
                                                         RunnerOptions options) {
  std::unique_ptr<RunnerParts> parts =
      TRY(RunnerParts::create(std::move(graphs), std::move(weights), device, std::move(options)));
  std::unique_ptr<ModelRunner> made(new ModelRunner(std::move(parts)));
  made->forwards_ = TRY(LocalForwards::create(*made->parts_, made->dispatcher_, made->step_));
  made->way_ = TRY(make_step_way({*made->parts_, made->dispatcher_, *made->forwards_}));
  return made;
}

ModelRunner::~ModelRunner() = default;

Result<std::unique_ptr<VisionRunner>> ModelRunner::make_vision(VisionOptions options) {
  return parts_->make_vision(std::move(options));
}

Status ModelRunner::fill_adapters() {
  AdapterTables* const adapters = parts_->memory().adapters.get();
  return adapters == nullptr ? ok_status() : adapters->fill_at_random(parts_->stream());
}

Result<bool> ModelRunner::idle_work() {
  if (in_flight() > 0) return internal_error("idle work is asked for while a forward is in flight");
  TRY(end_idle_forwards());
  const bool tower_waits =
      parts_->vision() != nullptr && parts_->vision()->has_wanted() && dispatcher_.table().graphs_enabled;
  if (tower_waits || captures_when_idle()) return capture_.capture_next();
  if (TRY(measurement_.measure_next())) return true;
  if (TRY(full_measurement_.measure_next())) return true;
  return parts_->vision() != nullptr && TRY(parts_->vision()->measure_next());
}

Result<ForwardOutputs> ModelRunner::forward(const ForwardInputs& inputs) {
  ForwardOutputs outputs;
  outputs.decision = TRY(submit(inputs));
  outputs.step = TRY(collect());
  return outputs;
}

Status ModelRunner::reserve_embeddings(std::int64_t rows) {
  if (rows <= parts_->memory().embeddings.rows()) return ok_status();
  return parts_->together({.kind = RankOrderKind::kReserveRows, .size = rows},
                          [&] { return parts_->memory().embeddings.reserve(rows); });
}

Result<Decision> ModelRunner::submit(const ForwardInputs& inputs) {
  const Status checked = forwards_->check(inputs, in_flight());
  if (!checked.ok()) return way_->fail(checked);
  return way_->submit(inputs);
}

Result<StepOutputs> ModelRunner::collect() {
  if (in_flight() == 0) return internal_error("no forward is in flight to be collected");
  return way_->collect();
}

MemoryReport ModelRunner::memory() const {
  MemoryReport report = measure_memory(*parts_, capture_.graph_bytes_of_estimate(), capture_.available());
  report.set(MemoryUse::kStepResults, forwards_->results().bytes());
  return report;
}

}  // namespace tessera
