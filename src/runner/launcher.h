// Stages the inputs of a forward, and enqueues one runner at one size. Steps are launched here. Captures, measurements
// and the oracle only stage here, and replay by themselves.
//
// Threads: the runner's thread.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/runner/runner_parts.h"
#include "tessera/runner/step_profiler.h"

namespace tessera {

// How a size's forward is enqueued: operator by operator, as a replay of its graphs, or as a replay of its full graph.
enum class Execution : std::uint8_t { kOperators, kGraphs, kFullGraph };

class Launcher {
 public:
  // `parts` must outlive this object.
  explicit Launcher(RunnerParts& parts) : parts_(parts) {}

  // Stages plans and static inputs of the tokens in the step buffer. The rows up to `padded_tokens` are padding.
  Status stage(const StagedTokens& tokens, BatchKind kind, std::int64_t padded_tokens);
  // Stages and uploads the plans and inputs of a dummy batch on the reserved page. Captured sizes of `runner` (prefill
  // or decode) are warmed up and measured with it. Its size is `size`, or the largest that a batch may have.
  Status stage_dummy(const GraphRunner& runner, std::int64_t size);
  // Does the same with a batch that defines every row (page_batch). Precondition: such a batch of the size exists.
  Status stage_pages(std::int64_t size);
  // Uploads the staged inputs.
  Status upload();
  // Uploads the staged inputs and enqueues one forward of `runner` at a bound size. Debug mode adds its checks. Sets
  // `*replay_failed`, unless null, to true if the replay itself fails.
  Status launch(GraphRunner& runner, std::int64_t size, std::int64_t real_rows, Execution how,
                bool* replay_failed = nullptr);
  // Checks in debug mode that the view still holds what its forward wrote.
  Status check_fresh(const OutputView& view) const;

  // Measures forwards from here on; null stops it. Owned by the profiling caller.
  void set_profiler(StepProfiler* profiler) { profiler_ = profiler; }
  StepProfiler* profiler() const { return profiler_; }

 private:
  Status enqueue(GraphRunner& runner, std::int64_t size, Execution how);

  RunnerParts& parts_;
  StepProfiler* profiler_ = nullptr;
};

}  // namespace tessera
