// Decides which runner takes a forward. It owns the table that dispatch() reads and keeps it in step with the runners,
// captures sizes when they are first used, and drops sizes whose replay fails.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "tessera/base/status.h"
#include "tessera/runner/capture/size_capture.h"
#include "tessera/runner/dispatch/dispatch.h"
#include "tessera/runner/dispatch/forward_end.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

class Dispatcher {
 public:
  // Both arguments must outlive this object. Until enable() is called, every forward is eager.
  Dispatcher(RunnerParts& parts, SizeCapture& captures);

  // Starts to use graphs as the options say.
  void enable();
  // Rebuilds the table after sizes were captured or dropped.
  void refresh();
  // Captures the full graph of a captured prefill size if measured costs favour it and it does not exist yet. Does
  // without it if the capture fails or the device has too little memory left.
  Status capture_full(std::int64_t size);
  const DispatchTable& table() const { return table_; }

  // Decides a forward. A size that is captured on first use is captured here; one whose capture fails is dropped, and
  // the next size is used. A forward whose size will be captured in an idle moment may be padded to a larger captured
  // size meanwhile.
  Result<Decision> decide(const BatchShape& batch);
  // Logs every forward at debug level, and the first fallback to eager of each reason as a warning.
  void log(const ForwardBatch& batch, const Decision& decision);

  // Records how a forward ended on all ranks. After three failed launches of its graph in a row its size is dropped.
  // Returns the error of dropping it.
  Status ended(const Decision& decision, const ForwardEnd& end);

  // Return the measured costs of forwards. Dispatch reads them if costs are measured.
  const CostTable& costs() const { return costs_; }
  CostTable& costs() { return costs_; }
  bool measures_costs() const { return parts_.model.options.measure_costs && parts_.model.decides(); }

  // Returns whether prefill sizes may get a full graph beside their pieces: the options allow it, costs are measured,
  // and the forward is cut into pieces but can be captured as one graph.
  bool chooses_full() const;
  // Returns whether at least half of the device's memory reserve is free on every rank. Full graphs are not part of the
  // memory plan and may take from the rest.
  bool has_memory_for_full() const;

  // Returns the runner of a decision. Eager forwards run the prefill runner's operators.
  GraphRunner& runner_of(RunnerKind kind, bool adapters = false) const {
    return parts_.runner(
        with_adapters(kind == RunnerKind::kDecode ? RunnerRole::kDecode : RunnerRole::kPrefill, adapters));
  }

 private:
  // Returns the decision among captured sizes alone, while that costs less than a capture would. Returns nothing when
  // the size should be captured now.
  std::optional<Decision> wait_padded(const BatchShape& batch, const Decision& wanted);
  using SizeKey = std::tuple<RunnerKind, bool, std::int64_t>;  // runner, with adapters or not, size
  static SizeKey key_of(const Decision& decision) { return {decision.runner, decision.adapters, decision.size}; }
  Status replay_failed(const Decision& decision, const Status& why);

  RunnerParts& parts_;
  SizeCapture& captures_;
  DispatchTable table_;
  CostTable costs_;
  std::array<bool, kNumReasons> warned_of_{};  // fallbacks to eager
  std::map<SizeKey, int> failed_replays_;      // in a row
  // Forwards that were padded while their size was not captured.
  std::map<SizeKey, int> waits_;
};

}  // namespace tessera
