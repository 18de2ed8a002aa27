// The start of a runner, and what it puts off: memory for the largest forward, warm-up, captures.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "tessera/base/status.h"
#include "tessera/runner/dispatch/dispatcher.h"
#include "tessera/runner/forward_step.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

class GraphCapture {
 public:
  // What it works on outlives this.
  GraphCapture(RunnerParts& parts, Dispatcher& dispatcher, ForwardStep& step)
      : parts_(parts), dispatcher_(dispatcher), step_(step) {}

  // ModelRunner::capture. `results` take those of the warm-up.
  Status start(StepResults& results, const std::function<bool()>& more);
  // Its first part: memory for the largest forward, and the warm-up.
  Status prepare(StepResults& results);
  // Its last part: the sizes of the tower that a start captures. Of this rank alone.
  static Status capture_start_budgets(RunnerParts& parts);
  // Captures one pending size, if there is one: the tower's that images came for, decode's, smallest first, the tower's
  // others. False where there is none.
  Result<bool> capture_next();
  // Captures every pending size.
  Status capture_rest();
  // Whether capture_next() has something to do.
  bool has_pending() const;

  // Measured bytes of graph objects over DeviceProperties' fit, where the device tells neither.
  double graph_bytes_of_estimate() const { return graph_bytes_of_estimate_; }
  std::int64_t available() const { return available_; }  // of the device's memory, at the end of start()

 private:
  Status reserve_memory();
  Status warm_up(StepResults& results);
  Status capture_graphs(const std::function<bool()>& more);
  Status capture_sizes(GraphRunner& runner);
  Result<bool> capture_tower();
  void measure_graphs(std::int64_t bytes);
  // Logs what is taken, and warns where too little would be left when every pending size is captured too.
  void report_memory();
  std::int64_t predicted_pending_bytes() const;  // of the device's memory, for graph objects

  RunnerParts& parts_;
  Dispatcher& dispatcher_;
  ForwardStep& step_;
  double graph_bytes_of_estimate_ = 1;
  std::int64_t available_ = 0;
};

}  // namespace tessera
