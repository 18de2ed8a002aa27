// One model on one device: its forwards, through graphs or eagerly.
//
//   std::unique_ptr<ModelRunner> runner = TRY(ModelRunner::create(graphs, weights, device, options));
//   TRY(runner->capture());
//   ForwardOutputs out = TRY(runner->forward({.batch = batch, .sampling = rows}));
//
// RunnerParts is what forwards run on; GraphCapture starts it; for each forward the Dispatcher picks runner and size
// and ForwardStep runs it; CostMeasurement and FullMeasurement work in idle moments. This class keeps the forwards in
// flight.
//
// Threads: one thread owns a runner. Errors of a forward leave the runner usable unless kDeviceLost.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/model.h"
#include "tessera/runner/capture/full_measurement.h"
#include "tessera/runner/capture/graph_capture.h"
#include "tessera/runner/dispatch/cost_measurement.h"
#include "tessera/runner/dispatch/dispatcher.h"
#include "tessera/runner/forward_counters.h"
#include "tessera/runner/forward_inputs.h"
#include "tessera/runner/forward_step.h"
#include "tessera/runner/memory/memory_report.h"
#include "tessera/runner/ranks/deferred_forwards.h"
#include "tessera/runner/runner_options.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

struct ForwardOutputs {
  Decision decision;
  StepOutputs step;
};

class ModelRunner {
 public:
  // Takes graphs and weights; `device` outlives the runner.
  static Result<std::unique_ptr<ModelRunner>> create(ModelGraphs graphs, Weights weights, Device& device,
                                                     RunnerOptions options);
  ~ModelRunner();

  // Warms the kernels up, takes the memory that the largest forward needs, and captures the sizes of both runners, as
  // options.capture says; of those that kCore puts off as many as there are while `more` says so, which is asked before
  // each. Once, before the first forward; without it every forward is eager. An error is one that a smaller set of
  // graphs would not avoid.
  Status capture(const std::function<bool()>& more = {}) { return capture_.start(results_, more); }
  // The first part of capture() alone: on a rank that follows another.
  Status prepare() { return capture_.prepare(results_); }
  // Captures at once what options.capture puts off. Precondition: none in flight.
  Status capture_rest() { return capture_.capture_rest(); }
  // One piece of work that may wait until there is nothing else to do: captures a pending size (of kCore, or of the
  // tower one that images came for), or measures a forward. False where none is left. Precondition: none in flight.
  Result<bool> idle_work();
  // Whether the next piece of idle work captures a size that kCore put off.
  bool captures_when_idle() const {
    return parts_->options.capture == CaptureMode::kCore && dispatcher_.table().graphs_enabled &&
           capture_.has_pending();
  }
  // What forwards cost, for dispatch; of an earlier run, for a start.
  const CostTable& costs() const { return dispatcher_.costs(); }
  void set_costs(CostTable costs) { dispatcher_.costs() = std::move(costs); }

  // submit() and collect() of one forward. Precondition: none is in flight.
  Result<ForwardOutputs> forward(const ForwardInputs& inputs);

  // Device memory for embeddings that forwards write and name (EmbeddingRows::reserve). Precondition: none is recorded.
  Status reserve_embeddings(std::int64_t rows);
  std::int64_t embedding_rows() const { return parts_->embeddings->rows(); }
  // For who writes rows on the device, on stream(): where row 0 lies, and what each is.
  DeviceAddress embeddings_base() const { return parts_->embeddings->base(); }
  std::int64_t embedding_row_values() const { return parts_->embeddings->row_values(); }
  std::int64_t embedding_row_bytes() const { return parts_->embeddings->row_bytes(); }
  ir::DType embedding_dtype() const { return parts_->embeddings->dtype(); }

  // Enqueues a forward and returns, where the device runs beside the host, before it has run: the host can stage and
  // enqueue the next one, whose rows may name this one's samples (ForwardBatch::input_rows). Where logits or hidden
  // states are wanted it waits for them. Precondition: fewer than max_in_flight() forwards are in flight. Allocates
  // nothing once the sizes in use have been seen.
  // In a pipeline on a host rank 0's part runs when the forward is collected, and fills these in then
  // (deferred_forwards.h).
  Result<Decision> submit(const ForwardInputs& inputs);
  // Of ranks with tokens of their own (ModelGraphs::dp_size): every forward is made by all ranks at once, by submit()
  // or, on a rank that has no tokens for it, by accompany(). Each call blocks until all ranks have come; they agree on
  // runner and size. A forward that fails on one rank is the end of the group: kDeviceLost, then and from then on.
  // accompany() enqueues too, and waits where as many forwards of others as max_in_flight() run; end_accompanied()
  // waits for all, and idle_work() does: a fault of the last one shows there.
  Status accompany();
  Status end_accompanied();
  // The same as another rank has decided it: nothing is captured, and nothing tried again.
  Status follow(const ForwardInputs& inputs, const Decision& decision);
  // Waits for the oldest forward in flight. After an error too it is in flight no more. Precondition: one is in flight.
  Result<StepOutputs> collect();
  // Waits for the newest forward in flight and forgets it. Precondition: one is in flight.
  Status discard();
  // In a pipeline on a host: each rank collects a forward once it has run its own part of it, rank 0 in collect().
  bool collects_as_it_runs() const;
  int in_flight() const { return in_flight_ + deferred_.size() + static_cast<int>(ran_.size()); }
  int max_in_flight() const { return parts_->options.max_in_flight; }
  // Of several ranks: a hash of all that the last collected forward came to, the same on every rank of its stage.
  std::uint64_t digest() const { return digest_; }
  // After sizes were captured or dropped by hand.
  void refresh_dispatch() { dispatcher_.refresh(); }

  const RunnerOptions& options() const { return parts_->options; }
  std::int64_t vocab_size() const { return parts_->vocab_size; }
  std::int64_t hidden_size() const { return parts_->hidden_size; }
  const DispatchTable& dispatch_table() const { return dispatcher_.table(); }
  const ForwardCounters& counters() const { return counters_; }
  // What the runner takes now, and what was predicted for it.
  MemoryReport memory() const;
  const MemoryReport& predicted_memory() const { return parts_->predicted; }
  // The one stream that forwards run on.
  Stream& stream() const { return *parts_->stream; }
  Device& device() const { return parts_->device; }
  // The kernels that planned operators (attention) run on, as results name them: "fa3", "cpu", "fa3, tessera" where
  // layers differ.
  std::string planned_kernels(BatchKind kind) const { return parts_->plans->kernels(kind); }
  const GraphRunner& prefill() const { return parts_->runner(RunnerRole::kPrefill); }
  const GraphRunner& decode() const { return parts_->runner(RunnerRole::kDecode); }
  // The tower of a model that sees; null: it has none. Used between two forwards.
  VisionRunner* vision() { return parts_->vision.get(); }
  const VisionRunner* vision() const { return parts_->vision.get(); }
  const GraphRunner& head() const { return parts_->runner(RunnerRole::kHead); }

  // Forwards are measured from here on; null: no longer. The profiler is taken away before it ends.
  // Precondition: none in flight.
  void set_profiler(StepProfiler* profiler) { parts_->profiler = profiler; }

  // What the oracle and debug tools look into. Precondition: none in flight.
  RunnerParts& parts() { return *parts_; }
  ForwardStep& step() { return step_; }

 private:
  ModelRunner(std::unique_ptr<RunnerParts> parts, StepResults results);
  Status check_inputs(const ForwardInputs& inputs) const;
  Result<Decision> decide(const ForwardInputs& inputs);
  bool has_own_tokens() const { return parts_->graphs.dp_size > 1; }
  Result<Decision> enqueue(const ForwardInputs& inputs, const Decision& decided, bool alone);
  ForwardInputs of_stage(const ForwardInputs& inputs) const;
  Result<Decision> submit_here(const ForwardInputs& asked, const Decision& decided, bool alone);
  Result<Decision> submit_to_ranks(const ForwardInputs& inputs, const Decision& decided);
  Result<StepOutputs> collect_here();
  Status check_group() const;
  Status or_end_group(const Status& ran);
  Result<StepOutputs> run_deferred();
  Result<StepOutputs> run_oldest();
  void run_all_deferred();
  std::size_t oldest_flight() const {
    return static_cast<std::size_t>((next_flight_ + max_in_flight() - in_flight_) % max_in_flight());
  }
  Status wait_for(Event& done);

  std::unique_ptr<RunnerParts> parts_;
  Dispatcher dispatcher_;
  ForwardStep step_;
  GraphCapture capture_;
  CostMeasurement measurement_;
  FullMeasurement full_measurement_;
  ForwardCounters counters_;
  StepResults results_;                              // [max_in_flight()], as are the next three
  std::vector<std::unique_ptr<Event>> done_;         // passed when the slot's results are there
  std::vector<std::uint64_t> digests_;               // of what submit() has filled in
  std::vector<Decision> decisions_;                  // of several ranks: what ran it
  std::vector<std::unique_ptr<Event>> accompanied_;  // as many, where ranks have tokens of their own: recorded behind
                                                     // each forward for other ranks
  std::size_t next_accompanied_ = 0;
  DeferredForwards deferred_;
  std::deque<Result<StepOutputs>> ran_;  // deferred ones that ran before they were collected
  bool runs_deferred_ = false;
  std::uint64_t digest_ = 0;
  int next_flight_ = 0;
  int in_flight_ = 0;
};

}  // namespace tessera
