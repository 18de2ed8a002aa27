// Stages the inputs of a forward, and enqueues the work of one runner at one size. The steps of the engine are staged
// and launched here. Captures, measurements and the oracle (verify/verify.h) stage their inputs here, but enqueue
// replays themselves.
//
// Threads: the runner's thread.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/runner/runner_parts.h"
#include "tessera/runner/step_profiler.h"

namespace tessera {

class OperatorObserver;

// How a forward is enqueued: operator by operator, as a replay of the size's graphs, or as a replay of its full graph.
enum class Execution : std::uint8_t { kOperators, kGraphs, kFullGraph };

class Launcher {
 public:
  // `parts` must outlive this object.
  explicit Launcher(RunnerParts& parts) : parts_(parts) {}

  // Writes the plans and static inputs of the tokens to the step buffer, which one copy transfers to the device. Fills
  // the rows up to `padded_tokens` with padding.
  Status stage(const StagedTokens& tokens, BatchKind kind, std::int64_t padded_tokens);
  // Stages and uploads the plans and inputs of a dummy batch on the reserved page (page 0). Warm-up and measurement of
  // captured sizes of `runner` (a prefill, a decode or a draft decode) use this batch. The batch has `size` tokens or
  // requests, but no more than the limits of the options allow.
  Status stage_dummy(const GraphRunner& runner, std::int64_t size);
  // Like stage_dummy(), but stages a batch in which every row has defined values (page_batch). Precondition:
  // page_batch() returns a batch of this size.
  Status stage_pages(std::int64_t size);
  // Uploads the staged inputs.
  Status upload();
  // Uploads the staged inputs and enqueues one forward of `runner` at a bound size. Debug mode adds its checks. If
  // `replay_failed` is not null, sets `*replay_failed` to whether the replay failed.
  Status launch(GraphRunner& runner, std::int64_t size, std::int64_t real_rows, Execution how,
                bool* replay_failed = nullptr);
  // In debug mode, checks that the view's memory still holds what the view's forward wrote.
  Status check_fresh(const OutputView& view) const;

  // Measures all later forwards with `profiler`. Null stops the measurement. The caller keeps ownership.
  void set_profiler(StepProfiler* profiler) { profiler_ = profiler; }
  StepProfiler* profiler() const { return profiler_; }
  // Shows `observer` every operator of all later forwards, which then run operator by operator even if their sizes are
  // captured. Null ends the observation. The caller keeps ownership.
  void set_observer(OperatorObserver* observer) { observer_ = observer; }

 private:
  Status enqueue(GraphRunner& runner, std::int64_t size, std::int64_t real_rows, Execution how);

  RunnerParts& parts_;
  StepProfiler* profiler_ = nullptr;
  OperatorObserver* observer_ = nullptr;
};

}  // namespace tessera
