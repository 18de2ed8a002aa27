// Captures and drops sizes of the runners that have graphs (kCapturedRoles). A size is captured on all ranks or on
// none.
//
// Threads: the runner's thread. On rank 0 every function also makes the other ranks capture or drop the size.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/runner/graphs/graph_runner.h"
#include "tessera/runner/launcher.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

class SizeCapture {
 public:
  // Both arguments must outlive this object.
  SizeCapture(RunnerParts& parts, Launcher& launcher) : parts_(parts), launcher_(launcher) {}

  // Captures all of `sizes` (GraphRunner::capture_each).
  Status capture(GraphRunner& runner, std::span<const std::int64_t> sizes);
  // Captures one size. If some of its kernels have not run yet, stages a dummy batch and runs them first. If the
  // capture fails, drops the size on all ranks and returns the error.
  Status capture(GraphRunner& runner, std::int64_t size);
  // Drops a captured size. Waits for the stream first, because an earlier launch may still use the graph.
  Status drop(GraphRunner& runner, std::int64_t size, const Status& why);
  // add_full() adds the full graph of a captured prefill size, and drop_full() waits for the stream and then drops this
  // graph.
  Status add_full(std::int64_t size);
  Status drop_full(std::int64_t size);

 private:
  RunnerParts& parts_;
  Launcher& launcher_;
};

}  // namespace tessera
