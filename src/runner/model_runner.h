// One model on one device: its forwards, through graphs or eagerly.
//
//   std::unique_ptr<ModelRunner> runner = TRY(ModelRunner::create(graphs, weights, device, options));
//   TRY(runner->capture());
//   ForwardOutputs out = TRY(runner->forward({.batch = batch, .sampling = rows}));
//
// Forwards run on RunnerParts, which GraphCapture starts. For each forward the Dispatcher picks runner and size, and
// ForwardStep runs it. CostMeasurement and FullMeasurement work in idle moments. This class keeps track of the forwards
// in flight.
//
// Threads: one thread owns a runner. An error of a forward leaves the runner usable, unless it is kDeviceLost.
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
  // Takes ownership of graphs and weights; `device` must outlive the runner.
  static Result<std::unique_ptr<ModelRunner>> create(ModelGraphs graphs, Weights weights, Device& device,
                                                     RunnerOptions options);
  ~ModelRunner();

  // Warms the kernels up, takes the memory that the largest forward needs, and captures the sizes of both runners as
  // options.capture says. `more` is asked before each size that kCore puts off; capture continues with them while it
  // returns true. Call it once, before the first forward; without it every forward is eager. An error is one that a
  // smaller set of graphs would not avoid.
  Status capture(const std::function<bool()>& more = {}) { return capture_.start(results_, more); }
  // Does the first part of capture() alone, on a rank that follows another.
  Status prepare() { return capture_.prepare(results_); }
  // Captures now what options.capture puts off. Precondition: no forward is in flight.
  Status capture_rest() { return capture_.capture_rest(); }
  // Does one piece of work that can wait for an idle moment: captures a pending size (one of kCore, or a tower size
  // that images came for), or measures a forward. Returns false where nothing is left. Precondition: no forward is in
  // flight.
  Result<bool> idle_work();
  // Returns whether idle work captures a size that kCore put off.
  bool captures_when_idle() const {
    return parts_->options.capture == CaptureMode::kCore && dispatcher_.table().graphs_enabled &&
           capture_.has_pending();
  }
  // Measured costs of forwards, for dispatch. set_costs() takes the costs of an earlier run at the start.
  const CostTable& costs() const { return dispatcher_.costs(); }
  void set_costs(CostTable costs) { dispatcher_.costs() = std::move(costs); }

  // Calls submit() and collect() for one forward. Precondition: no forward is in flight.
  Result<ForwardOutputs> forward(const ForwardInputs& inputs);

  // Commits device memory for embeddings that forwards write and read (EmbeddingRows::reserve). Precondition: no
  // forward is being recorded.
  Status reserve_embeddings(std::int64_t rows);
  std::int64_t embedding_rows() const { return parts_->embeddings->rows(); }
  // For code that writes rows on the device, on stream(): the address of row 0 and the size of each row.
  DeviceAddress embeddings_base() const { return parts_->embeddings->base(); }
  std::int64_t embedding_row_values() const { return parts_->embeddings->row_values(); }
  std::int64_t embedding_row_bytes() const { return parts_->embeddings->row_bytes(); }
  ir::DType embedding_dtype() const { return parts_->embeddings->dtype(); }

  // Enqueues a forward and returns; where the device runs beside the host, it returns before the forward has run. The
  // host can then stage and enqueue the next one, whose rows may name this one's samples (ForwardBatch::input_rows). It
  // waits for logits and hidden states where they are wanted. In a pipeline on a host device, rank 0's part runs when
  // the forward is collected, and fills them in then (deferred_forwards.h). Precondition: fewer than max_in_flight()
  // forwards are in flight. Allocates nothing for sizes that were seen before.
  Result<Decision> submit(const ForwardInputs& inputs);
  // Idle forward, for ranks with tokens of their own (ModelGraphs::dp_size). All ranks make every forward together: by
  // submit(), or by accompany() on a rank that has no tokens for it. Each call blocks until all ranks have made theirs,
  // and the ranks agree on runner and size. A forward that fails on one rank ends the group: this call and all later
  // ones return kDeviceLost. accompany() only enqueues, but waits where max_in_flight() idle forwards run already.
  // end_accompanied() waits for all of them, as idle_work() does; a fault of the last one shows there.
  Status accompany();
  Status end_accompanied();
  // Submits a forward as another rank has decided it: captures nothing and retries nothing.
  Status follow(const ForwardInputs& inputs, const Decision& decision);
  // Waits for the oldest forward in flight. After an error it is no longer in flight either. Precondition: a forward is
  // in flight.
  Result<StepOutputs> collect();
  // Waits for the newest forward in flight and drops its results. Precondition: a forward is in flight.
  Status discard();
  // Returns whether this is a pipeline on a host device: each rank collects a forward once it has run its own part,
  // rank 0 in collect().
  bool collects_as_it_runs() const;
  int in_flight() const { return in_flight_ + deferred_.size() + static_cast<int>(ran_.size()); }
  int max_in_flight() const { return parts_->options.max_in_flight; }
  // Where there are several ranks: a hash of all results of the last collected forward, the same on every rank of its
  // stage.
  std::uint64_t digest() const { return digest_; }
  // Updates dispatch after sizes were captured or dropped directly.
  void refresh_dispatch() { dispatcher_.refresh(); }

  const RunnerOptions& options() const { return parts_->options; }
  std::int64_t vocab_size() const { return parts_->vocab_size; }
  std::int64_t hidden_size() const { return parts_->hidden_size; }
  const DispatchTable& dispatch_table() const { return dispatcher_.table(); }
  const ForwardCounters& counters() const { return counters_; }
  // The memory that the runner takes now, and the memory that was predicted for it.
  MemoryReport memory() const;
  const MemoryReport& predicted_memory() const { return parts_->predicted; }
  // The one stream that forwards run on.
  Stream& stream() const { return *parts_->stream; }
  Device& device() const { return parts_->device; }
  // Returns the kernels of planned operators (attention) as results name them: "fa3", "cpu", or "fa3, tessera" where
  // layers differ.
  std::string planned_kernels(BatchKind kind) const { return parts_->plans->kernels(kind); }
  const GraphRunner& prefill() const { return parts_->runner(RunnerRole::kPrefill); }
  const GraphRunner& decode() const { return parts_->runner(RunnerRole::kDecode); }
  // The vision tower; null where the model has none. It is used between two forwards.
  VisionRunner* vision() { return parts_->vision.get(); }
  const VisionRunner* vision() const { return parts_->vision.get(); }
  const GraphRunner& head() const { return parts_->runner(RunnerRole::kHead); }

  // Measures forwards from here on; null stops it. The profiler must be removed before it is destroyed. Precondition:
  // no forward is in flight.
  void set_profiler(StepProfiler* profiler) { parts_->profiler = profiler; }

  // For the oracle and debug tools. Precondition: no forward is in flight.
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
  StepResults results_;                       // [max_in_flight()], as are the next three members
  std::vector<std::unique_ptr<Event>> done_;  // recorded behind the forward of each slot
  std::vector<std::uint64_t> digests_;        // digests of what submit() has filled in
  std::vector<Decision> decisions_;           // decisions that forwards ran with, where there are several ranks
  // [max_in_flight()], where ranks have tokens of their own: recorded behind each idle forward.
  std::vector<std::unique_ptr<Event>> accompanied_;
  std::size_t next_accompanied_ = 0;
  DeferredForwards deferred_;
  std::deque<Result<StepOutputs>> ran_;  // deferred forwards that ran before they were collected
  bool runs_deferred_ = false;
  std::uint64_t digest_ = 0;
  int next_flight_ = 0;
  int in_flight_ = 0;
};

}  // namespace tessera
