// Runs the forwards of one model on one device, through graphs or eagerly.
//
//   std::unique_ptr<ModelRunner> runner = TRY(ModelRunner::create(graphs, weights, device, options));
//   TRY(runner->capture());
//   ForwardOutputs out = TRY(runner->forward({.batch = batch, .sampling = rows}));
//
// RunnerParts holds everything that forwards run on, and GraphCapture prepares it. A StepWay runs each forward on the
// model's ranks: the Dispatcher chooses the GraphRunner (for example prefill or decode) and the size, and LocalForwards
// enqueues the work. CostMeasurement and FullMeasurement run when no request waits.
//
// Threads: one thread owns a ModelRunner. After an error of a forward the ModelRunner stays usable. Only kDeviceLost
// makes it unusable.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/adapters/adapter.h"
#include "tessera/model/model.h"
#include "tessera/runner/capture/cost_measurement.h"
#include "tessera/runner/capture/dispatcher.h"
#include "tessera/runner/capture/full_measurement.h"
#include "tessera/runner/capture/graph_capture.h"
#include "tessera/runner/capture/size_capture.h"
#include "tessera/runner/drafts/draft_step.h"
#include "tessera/runner/forward_counters.h"
#include "tessera/runner/forward_inputs.h"
#include "tessera/runner/forward_step.h"
#include "tessera/runner/memory/memory_report.h"
#include "tessera/runner/runner_options.h"
#include "tessera/runner/runner_parts.h"
#include "tessera/runner/steps/local_forwards.h"
#include "tessera/runner/steps/step_way.h"

namespace tessera {

struct ForwardOutputs {
  Decision decision;
  StepOutputs step;
};

class ModelRunner {
 public:
  // Takes ownership of graphs and weights. `device` must outlive the runner.
  static Result<std::unique_ptr<ModelRunner>> create(ModelGraphs graphs, Weights weights, Device& device,
                                                     RunnerOptions options);
  ~ModelRunner();

  // Runs every kernel once, allocates the memory of the largest forward, and captures sizes as options.capture says.
  // With CaptureMode::kCore, some sizes are deferred. capture() calls `more` before each deferred size, captures the
  // size if `more` returns true, and stops at the first false. Call capture() once, before the first forward. Without
  // this call every forward is eager. A size whose capture fails is dropped. Returns an error if the runner cannot
  // start even with fewer graphs.
  Status capture(const std::function<bool()>& more = {}) { return capture_.start(forwards_->results(), more); }
  // Does only the first part of capture(): allocates the memory of the largest forward, and runs every kernel once.
  // Ranks that follow rank 0 call prepare() in place of capture(). They then capture the sizes that rank 0 orders.
  Status prepare() { return capture_.prepare(forwards_->results()); }
  // Captures all sizes that options.capture defers. Precondition: no forward is in flight.
  Status capture_rest() { return capture_.capture_rest(); }
  // Does one piece of work that can wait for an idle moment: captures a pending size (one that kCore deferred, or a
  // vision tower size that images have needed), or measures a forward. Returns false if nothing is left. Precondition:
  // no forward is in flight.
  Result<bool> idle_work();
  // Returns whether idle_work() still has to capture a size that kCore deferred.
  bool captures_when_idle() const {
    return parts_->model.options.capture == CaptureMode::kCore && dispatcher_.table().graphs_enabled &&
           capture_.has_pending();
  }
  // Returns the measured costs of forwards, for dispatch. At the start, set_costs() can restore the costs that an
  // earlier run of the program measured.
  const CostTable& costs() const { return dispatcher_.costs(); }
  void set_costs(CostTable costs) { dispatcher_.costs() = std::move(costs); }

  // Calls submit() and collect() for one forward. Precondition: no forward is in flight.
  Result<ForwardOutputs> forward(const ForwardInputs& inputs);

  // Commits device memory for embeddings that forwards write and read (EmbeddingRows::reserve). Precondition: no
  // forward is being recorded.
  Status reserve_embeddings(std::int64_t rows);
  std::int64_t embedding_rows() const { return parts_->memory().embeddings.rows(); }
  // Return the address of embedding row 0, the number of values in a row, the number of bytes in a row, and the type of
  // the values. The caller may write rows by device work on stream().
  DeviceAddress embeddings_base() const { return parts_->memory().embeddings.base(); }
  std::int64_t embedding_row_values() const { return parts_->memory().embeddings.row_values(); }
  std::int64_t embedding_row_bytes() const { return parts_->memory().embeddings.row_bytes(); }
  ir::DType embedding_dtype() const { return parts_->memory().embeddings.dtype(); }

  // Enqueues a forward. If the device runs in parallel with the host, the call returns before the forward has run. The
  // host can then stage and enqueue the next forward. A row of the next forward may have as its input a token that this
  // forward samples (ForwardBatch::input_rows). If logits or hidden states are wanted, the call waits for them, unless
  // the forward runs only when it is collected (steps/host_pipeline.cpp). In that case collect() fills them in.
  // Precondition: fewer than max_in_flight() forwards are in flight. Allocates nothing for sizes that were seen before.
  Result<Decision> submit(const ForwardInputs& inputs);
  // Takes part in a forward for which this rank has no tokens. With data parallelism (ModelGraphs::dp_size), a rank
  // without tokens must still take part in the forward of the other ranks (steps/data_parallel.cpp). run_idle_forward()
  // waits until the ranks agree on a graph. If max_in_flight() idle forwards run already, it also waits for the oldest
  // of them. Then it enqueues the idle forward and returns. end_idle_forwards() waits for all idle forwards, and
  // returns the error of this wait. idle_work() calls end_idle_forwards() first.
  Status run_idle_forward() { return way_->run_idle_forward(); }
  Status end_idle_forwards() { return way_->end_idle_forwards(); }
  // Waits for the oldest forward in flight. The forward is no longer in flight afterwards, even after an error.
  // Precondition: a forward is in flight.
  Result<StepOutputs> collect();
  // Returns the object that runs the next-token layer or the draft model. Call its functions only between two forwards,
  // except that the result of fetched() may also be read after the next submit().
  DraftStep& drafts() { return draft_; }
  int in_flight() const { return way_->in_flight(); }
  int max_in_flight() const { return parts_->model.options.max_in_flight; }
  // Updates dispatch after a caller has captured or dropped sizes through captures().
  void refresh_dispatch() { dispatcher_.refresh(); }

  // Returns what is fixed after creation: graphs, weights, options, and what is derived from them.
  const RunnerModel& model() const { return parts_->model; }
  const RunnerOptions& options() const { return parts_->model.options; }
  std::int64_t vocab_size() const { return parts_->model.vocab_size; }
  std::int64_t hidden_size() const { return parts_->model.hidden_size; }
  const DispatchTable& dispatch_table() const { return dispatcher_.table(); }
  // Calls OpPlans::takes_checkpoints().
  bool takes_checkpoints() const { return parts_->memory().plans.takes_checkpoints(); }
  const ForwardCounters& counters() const { return forwards_->counters(); }
  // Return the memory that the runner takes now, and the memory that was predicted for it.
  MemoryReport memory() const;
  const MemoryReport& predicted_memory() const { return parts_->predicted(); }
  // Returns the one stream that forwards run on.
  Stream& stream() const { return parts_->stream(); }
  Device& device() const { return parts_->model.device; }
  // Returns the names of the kernels that planned operators (attention) use: "fa3", "cpu", or "fa3, tessera" if layers
  // differ.
  std::string planned_kernels(BatchKind kind) const { return parts_->memory().plans.kernels(kind); }
  // Return the compiled runner of a role. Precondition: the model has such a runner. Do not capture, stage or run
  // anything through the runner while a forward is in flight.
  GraphRunner& runner(RunnerRole role) { return parts_->runner(role); }
  const GraphRunner& runner(RunnerRole role) const { return parts_->runner(role); }
  const GraphRunner& prefill() const { return runner(RunnerRole::kPrefill); }
  const GraphRunner& decode() const { return runner(RunnerRole::kDecode); }
  const GraphRunner& head() const { return runner(RunnerRole::kHead); }
  // Returns the vision tower, or null if the model has none. Use it only between two forwards.
  VisionRunner* vision() { return parts_->vision(); }
  const VisionRunner* vision() const { return parts_->vision(); }
  // Makes a tower with other options that shares the memory and the weights of vision(). Precondition: the model has a
  // tower.
  Result<std::unique_ptr<VisionRunner>> make_vision(VisionOptions options);

  // Returns the layout that lists the linears that adapters may change. Returns null if no adapters are served. The
  // layout lives as long as the runner, and any thread may read it.
  const AdapterLayout* adapter_layout() const {
    return parts_->memory().adapters == nullptr ? nullptr : &parts_->memory().adapters->layout();
  }
  // Copies an adapter to a slot on every rank. Forwards that are submitted later use it (AdapterTables::write).
  // Precondition: adapters are served.
  Status write_adapter(std::int64_t slot, const std::shared_ptr<const Adapter>& adapter) {
    return parts_->write_adapter(slot, adapter);
  }
  // If adapters are served, fills every adapter slot with pseudo-random matrices of the largest rank. Precondition: no
  // slot is in use.
  Status fill_adapters();
  // Runs `local`, while other runners that follow this one carry out `order` (RunnerParts::together).
  Status together(const RankOrder& order, const std::function<Status()>& local) {
    return parts_->together(order, local);
  }

  // Measures all later forwards with `profiler`. Null stops the measurement and must be set before the profiler is
  // destroyed. Precondition: no forward is in flight.
  void set_profiler(StepProfiler* profiler) { step_.launcher().set_profiler(profiler); }
  // Shows `observer` every operator of all later forwards (Launcher::set_observer). Null ends the observation.
  // Precondition: no forward is in flight.
  void set_observer(OperatorObserver* observer) { step_.launcher().set_observer(observer); }

  // Return inner parts of the runner, for use by a rank that follows rank 0 (rank_follower.h), by verification
  // (verify/verify.h), and by benchmarks. Code outside the runner does not use parts(). Do not capture, stage or run
  // anything through them while a forward is in flight.
  RunnerParts& parts() { return *parts_; }
  ForwardStep& step() { return step_; }
  SizeCapture& captures() { return captures_; }
  // Returns this rank's forwards, for a rank that follows rank 0 (followed_forwards.h).
  LocalForwards& forwards() { return *forwards_; }

 private:
  explicit ModelRunner(std::unique_ptr<RunnerParts> parts);

  std::unique_ptr<RunnerParts> parts_;
  ForwardStep step_;
  SizeCapture captures_;
  Dispatcher dispatcher_;
  DraftStep draft_;
  GraphCapture capture_;
  CostMeasurement measurement_;
  FullMeasurement full_measurement_;
  std::unique_ptr<LocalForwards> forwards_;
  std::unique_ptr<StepWay> way_;
};

}  // namespace tessera
