// One model on one device: weights, KV cache, arena, and its forwards through graphs or eagerly.
//
//   std::unique_ptr<ModelRunner> runner = TRY(ModelRunner::create(graphs, weights, device, options));
//   TRY(runner->capture());
//   ForwardOutputs out = TRY(runner->forward({.batch = batch, .sampling = rows}));
//
// A forward: dispatch picks runner and size; attention's plan and the static inputs are staged; the
// prefill graphs are replayed piece by piece and the head run on the wanted rows, or the decode graph,
// which holds body, head and sampler, is replayed whole; where logits are edited or log-probabilities wanted,
// the chooser goes on from the logits; sampled ids are copied out of the arena.
//
// Threads: one thread owns a runner. Errors of a forward leave the runner usable unless kDeviceLost.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/model.h"
#include "tessera/ops/forward_batch.h"
#include "tessera/runner/chooser.h"
#include "tessera/runner/debug_mode.h"
#include "tessera/runner/dispatch.h"
#include "tessera/runner/forward_counters.h"
#include "tessera/runner/forward_inputs.h"
#include "tessera/runner/graph_runner.h"
#include "tessera/runner/input_buffers.h"
#include "tessera/runner/kv_storage.h"
#include "tessera/runner/memory_ledger.h"
#include "tessera/runner/op_plans.h"
#include "tessera/runner/runner_options.h"

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

  // Warms the kernels up at the smallest size, takes the memory that the largest forward needs, and captures the sizes
  // of both runners, as options.capture says. Once, before the first forward; without it every forward is eager. An
  // error is one that no smaller set of graphs would mend.
  Status capture();
  // Captures at once what options.capture puts off. Precondition: none in flight.
  Status capture_rest();
  // One piece of work that may wait until there is nothing else to do: captures a size that is still to come
  // (CaptureMode::kCore), or measures a forward; no larger ones after one of more than 30 ms. False where none is left.
  // Precondition: none in flight.
  Result<bool> idle_work();
  // What forwards cost, for dispatch; of an earlier run, for a start.
  const CostTable& costs() const { return costs_; }
  void set_costs(CostTable costs) { costs_ = std::move(costs); }

  // submit() and collect() of one forward. Precondition: none is in flight.
  Result<ForwardOutputs> forward(const ForwardInputs& inputs);

  // Enqueues a forward and returns, where the device runs beside the host, before it has run: the host can stage and
  // enqueue the next one, whose rows may name this one's samples (ForwardBatch::input_rows). Where logits or hidden
  // states are wanted it waits for them. Precondition: fewer than kMaxInFlight forwards are in flight. Allocates
  // nothing once the sizes in use have been seen.
  static constexpr int kMaxInFlight = 2;
  Result<Decision> submit(const ForwardInputs& inputs);
  // Waits for the oldest forward in flight. After an error too it is in flight no more. Precondition: one is in flight.
  Result<StepOutputs> collect();
  int in_flight() const { return in_flight_; }

  const RunnerOptions& options() const { return options_; }
  std::int64_t vocab_size() const { return vocab_size_; }
  std::int64_t hidden_size() const { return hidden_size_; }
  const DispatchTable& dispatch_table() const { return table_; }
  const ForwardCounters& counters() const { return counters_; }
  MemoryLedger memory() const;
  // The one stream that forwards run on.
  Stream& stream() const { return *stream_; }
  Device& device() const { return device_; }
  // The kernels that planned operators (attention) run on, as results name them: "fa3", "cpu", "fa3, tessera" where
  // layers differ.
  std::string planned_kernels(BatchKind kind) const;
  // The size at which the head runs for so many wanted rows, at most the largest.
  std::int64_t head_size(std::int64_t rows) const;
  const GraphRunner& prefill() const { return *prefill_; }
  const GraphRunner& decode() const { return *decode_; }
  const GraphRunner& head() const { return *head_; }

 private:
  friend class Verifier;             // runs the same graphs over isolated memory
  friend class DebugModeTestAccess;  // moves what graphs hold the addresses of
  ModelRunner(ModelGraphs graphs, Weights weights, Device& device, RunnerOptions options);

  Status allocate();
  Status build_executables();
  ExecutionEnvironment environment();

  Result<Decision> enqueue(const ForwardInputs& inputs);
  Status warm_up();
  Status reserve_memory();
  void measure_graphs(std::int64_t bytes);
  void tell_memory();
  Status capture_graphs(const GraphSwitches& on);
  Status capture_sizes(GraphRunner& runner, std::span<const std::int64_t> ladder);
  void refresh_table();
  Result<Decision> decide(const BatchShape& batch);
  void tell(const ForwardBatch& batch, const Decision& decision);
  Status run(const ForwardInputs& inputs, const Decision& decision, StepResults::Slot& results);
  Status launch(GraphRunner& runner, std::int64_t size, std::int64_t real_rows, bool replay);
  Status check_fresh(const OutputView& view) const;
  GraphRunner& runner_of(RunnerKind kind) { return kind == RunnerKind::kDecode ? *decode_ : *prefill_; }
  Status give_up_failed_graph(const Decision& decision, const Status& why);
  // Ranks must dispatch alike, and each measures for itself.
  bool measures_costs() const { return options_.measure_costs && options_.communicator == nullptr; }
  void collect_unmeasured();
  Result<bool> measure_next();
  Result<double> measure(RunnerKind kind, std::int64_t size);
  Status stage(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_tokens, TokenId padding_id);
  Status run_decode(const ForwardInputs& inputs, std::int64_t size, StepResults::Slot& results);
  Status run_body(const ForwardInputs& inputs, const Decision& decision);
  Status run_head(const ForwardInputs& inputs, StepResults::Slot& results);
  Status take_rows(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results);
  Status read_hidden(const OutputView& hidden, std::span<float> to);

  // In order of creation; destroyed in reverse: graphs first, then buffers, then the stream (D8).
  Device& device_;
  RunnerOptions options_;
  ModelGraphs graphs_;
  Weights weights_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<KvStorage> kv_;
  std::unique_ptr<InputBuffers> inputs_;
  std::unique_ptr<EditBuffers> edits_;
  std::unique_ptr<OpPlans> plans_;
  ForwardContext context_;
  ForwardContext decode_context_;  // the same, of batches with one row a request
  ExternalValues externals_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Arena> workspace_;
  std::unique_ptr<DebugMode> debug_;  // null without options.debug
  std::unique_ptr<GraphRunner> prefill_;
  std::unique_ptr<GraphRunner> head_;
  std::unique_ptr<GraphRunner> decode_;
  std::vector<std::int64_t> head_sizes_;
  std::unique_ptr<Chooser> chooser_;
  std::vector<std::int32_t> in_order_;    // 0, 1, 2, …: the wanted rows of decode graphs
  std::vector<std::byte> hidden_host_;    // of the forward that wanted most hidden states, in the device's type
  std::unique_ptr<StepResults> results_;  // [kMaxInFlight]
  std::array<std::unique_ptr<Event>, kMaxInFlight> done_;  // passed when the slot's results are there
  int next_flight_ = 0;
  int in_flight_ = 0;
  std::int64_t vocab_size_ = 0;
  std::int64_t hidden_size_ = 0;
  WorkingMemory predicted_;
  double graph_bytes_of_estimate_ = 1;  // runner_memory()'s
  std::int64_t available_ = 0;          // of the device's memory, at the end of capture
  std::int64_t hidden_bytes_ = 0;       // of the largest body output, at the arena's start
  DispatchTable table_;
  CostTable costs_;
  std::vector<std::pair<RunnerKind, std::int64_t>> to_come_;     // sizes to be captured in idle moments, the last first
  std::vector<std::pair<RunnerKind, std::int64_t>> to_measure_;  // the last first
  // By this runner; what an earlier run measured is measured once more, in case that was disturbed.
  std::set<std::pair<RunnerKind, std::int64_t>> measured_;
  // [RunnerKind]: larger sizes take too long to be measured.
  std::array<std::int64_t, 3> measured_below_ = {INT64_MAX, INT64_MAX, INT64_MAX};
  std::array<bool, kNumReasons> told_{};  // eager reasons that the log has at its default level
  bool launch_failed_ = false;            // of the forward at hand: nothing was kept of it yet
  std::map<std::pair<RunnerKind, std::int64_t>, int> failed_replays_;  // in a row
  ForwardCounters counters_;
};

}  // namespace tessera
