// Starts a ModelRunner: allocates memory for the largest forward, runs every kernel once, and captures graphs. After
// the start, captures the sizes that were deferred.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "tessera/base/status.h"
#include "tessera/runner/capture/dispatcher.h"
#include "tessera/runner/capture/size_capture.h"
#include "tessera/runner/forward_step.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

class GraphCapture {
 public:
  // All arguments must outlive this object.
  GraphCapture(RunnerParts& parts, SizeCapture& captures, Dispatcher& dispatcher, ForwardStep& step)
      : parts_(parts), captures_(captures), dispatcher_(dispatcher), step_(step) {}

  // Does the work of ModelRunner::capture. The results of the warm-up forward are written to `results`.
  Status start(StepResults& results, const std::function<bool()>& more);
  // Does the first part of start(): allocates memory for the largest forward and warms up.
  Status prepare(StepResults& results);
  // Does the last part of start(): captures the vision tower's sizes that are not deferred, on this rank only.
  static Status capture_start_budgets(RunnerParts& parts);
  // Captures one pending size. The vision tower's sizes that images have needed come first. Then come the sizes of
  // decode, drafts, prefill and the adapter runners, one runner after another, each with its smallest size first. The
  // tower's other sizes come last. Returns false if no size is pending.
  Result<bool> capture_next();
  // Captures every pending size.
  Status capture_rest();
  // Returns whether capture_next() has something to do.
  bool has_pending() const;

  // Returns the device memory that the captures took, divided by the estimate that follows from DeviceProperties. If
  // the device does not report the memory of its graphs, memory reports multiply estimates by this ratio.
  double graph_bytes_of_estimate() const { return graph_bytes_of_estimate_; }
  std::int64_t available() const { return available_; }  // free bytes of device memory at the end of start()

 private:
  Status reserve_memory();
  Status warm_up(StepResults& results);
  Status capture_graphs(const std::function<bool()>& more);
  Status capture_sizes(GraphRunner& runner);
  Result<bool> capture_tower();
  void measure_graphs(std::int64_t bytes);
  // Logs the memory that is in use. Warns if capturing every pending size would leave too little.
  void report_memory();
  std::int64_t predicted_pending_bytes() const;  // device memory that graph objects of the pending sizes will take

  RunnerParts& parts_;
  SizeCapture& captures_;
  Dispatcher& dispatcher_;
  ForwardStep& step_;
  double graph_bytes_of_estimate_ = 1;
  std::int64_t available_ = 0;
};

}  // namespace tessera
