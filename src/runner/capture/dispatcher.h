// Decides which runner takes a forward. Owns the table that dispatch() reads, and updates this table when sizes change.
// Captures sizes when they are first used, and drops sizes whose replay fails.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "tessera/base/status.h"
#include "tessera/runner/capture/replay_failures.h"
#include "tessera/runner/capture/size_capture.h"
#include "tessera/runner/dispatch/dispatch.h"
#include "tessera/runner/dispatch/forward_end.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

class Dispatcher {
 public:
  // Both arguments must outlive this object. Until enable() is called, every forward is eager.
  Dispatcher(RunnerParts& parts, SizeCapture& captures);

  // After this call, forwards use graphs, as far as the options allow.
  void enable();
  // Rebuilds the table after sizes were captured or dropped.
  void refresh();
  // Captures the full graph of a captured prefill size, if the graph does not exist yet and measured costs favour it.
  // If the capture fails or too little device memory is left, the size keeps only the graphs of its pieces.
  Status capture_full(std::int64_t size);
  const DispatchTable& table() const { return table_; }

  // Decides how a forward runs. If the chosen size has no graph yet, decide() either captures it now, or pads the
  // forward to a larger captured size and leaves the capture to an idle moment (wait_padded). If the capture fails,
  // decide() drops the size and decides again.
  Result<Decision> decide(const BatchShape& batch);
  // Logs every forward at debug level. The first time that a forward falls back to an eager run for a given reason,
  // logs it as a warning.
  void log(const ForwardBatch& batch, const Decision& decision);

  // Records how a forward ended on all ranks. Drops a graph after it failed to launch three times in a row. Returns an
  // error if the size cannot be dropped.
  Status ended(const Decision& decision, const ForwardEnd& end);

  // Both functions return the measured costs of forwards. Dispatch reads these costs if measuring is on.
  const CostTable& costs() const { return costs_; }
  CostTable& costs() { return costs_; }
  bool measures_costs() const { return parts_.model.options.measure_costs && parts_.model.options.decides(); }

  // Returns whether prefill sizes may get a full graph in addition to their pieces. This requires
  // RunnerOptions::choose_full, measured costs, prefill graphs, and a model whose prefills are cut into pieces although
  // they can be captured as one graph.
  bool chooses_full() const;
  // Returns whether at least half of the memory reserve is free on every rank's device. The memory plan does not
  // include full graphs, so full graphs take memory from the reserve.
  bool has_memory_for_full() const;

  // Returns the runner of a decision. Eager forwards run the prefill runner's operators.
  GraphRunner& runner_of(RunnerKind kind, bool adapters = false) const {
    return parts_.runner(
        with_adapters(kind == RunnerKind::kDecode ? RunnerRole::kDecode : RunnerRole::kPrefill, adapters));
  }

 private:
  // Returns a decision that pads the forward to a captured size, if padding costs less than a capture and only a few
  // forwards of the wanted size have been padded so far. Otherwise returns nothing, and the size should be captured
  // now.
  std::optional<Decision> wait_padded(const BatchShape& batch, const Decision& wanted);
  using SizeKey = std::tuple<RunnerKind, bool, std::int64_t>;  // runner, whether it has adapters, size
  static SizeKey key_of(const Decision& decision) { return {decision.runner, decision.adapters, decision.size}; }
  Status replay_failed(const Decision& decision, const Status& why);

  RunnerParts& parts_;
  SizeCapture& captures_;
  DispatchTable table_;
  CostTable costs_;
  std::array<bool, kNumReasons> warned_of_{};  // indexed by Reason: whether a warning for this reason was logged
  ReplayFailures<SizeKey> failures_;
  // For each size, the number of forwards that were padded because this size was not captured yet.
  std::map<SizeKey, int> waits_;
};

}  // namespace tessera
