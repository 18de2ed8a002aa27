// Which runner takes a forward, over what is captured now: the table that dispatch() looks at, kept in step with the
// runners, sizes that are captured when they are first wanted, and sizes whose replay fails.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "tessera/base/status.h"
#include "tessera/runner/dispatch/dispatch.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

class Dispatcher {
 public:
  // `parts` outlive this. Until enable() every forward is eager.
  explicit Dispatcher(RunnerParts& parts);

  // The options' graphs are in use from now on.
  void enable();
  // After sizes were captured or dropped.
  void refresh();
  // Captures the full graph of a captured prefill size that costs are known to be less with, unless it is there. One
  // that cannot be captured, or for which the device has too little memory left, is done without.
  Status capture_full(std::int64_t size);
  const DispatchTable& table() const { return table_; }

  // A size that is captured on first use is captured here; one that fails is dropped, and the next one is taken. One
  // that idle moments will capture may be waited for at a larger size.
  Result<Decision> decide(const BatchShape& batch);
  // The first fallback to eager of each reason is a warning. Every forward is logged at debug level.
  void log(const ForwardBatch& batch, const Decision& decision);

  // The graph of a forward was not launched. After three failures in a row its size is dropped.
  Status replay_failed(const Decision& decision, const Status& why);
  void replay_succeeded(const Decision& decision) {
    if (!failed_replays_.empty()) failed_replays_.erase({decision.runner, decision.size});
  }

  // What forwards cost. Dispatch asks for it where costs are measured.
  const CostTable& costs() const { return costs_; }
  CostTable& costs() { return costs_; }
  // Of several ranks, rank 0 measures and decides.
  bool measures_costs() const {
    return parts_.options.measure_costs && (parts_.options.communicator == nullptr || parts_.options.ranks != nullptr);
  }

  // Whether prefill sizes may have a full graph beside their pieces: the options say so, costs are measured, the
  // forward is cut and may be captured as one.
  bool chooses_full() const;
  // Half of the device's reserve is left, on every rank; graphs that the plan of the memory does not know may take from
  // the rest.
  bool has_memory_for_full() const;
  // One graph of a captured prefill size, on all ranks or on none.
  Status add_full(std::int64_t size);
  Status drop_full(std::int64_t size);

  // The runner of a decision: eager forwards run prefill's operators.
  GraphRunner& runner_of(RunnerKind kind) const {
    return parts_.runner(kind == RunnerKind::kDecode ? RunnerRole::kDecode : RunnerRole::kPrefill);
  }

 private:
  // The decision among captured sizes alone, as long as that costs less than a capture would; none: captured is now.
  std::optional<Decision> wait_padded(const BatchShape& batch, const Decision& wanted);

  RunnerParts& parts_;
  DispatchTable table_;
  CostTable costs_;
  std::array<bool, kNumReasons> warned_of_{};                          // fallbacks to eager
  std::map<std::pair<RunnerKind, std::int64_t>, int> failed_replays_;  // in a row
  std::map<std::pair<RunnerKind, std::int64_t>, int> waits_;           // forwards that were padded until it is there
};

}  // namespace tessera
