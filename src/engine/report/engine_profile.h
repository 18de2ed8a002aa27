// Where the time of an engine's steps went: what each forward was, and what host and device did.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tessera/engine/report/graph_use.h"
#include "tessera/runner/step_profiler.h"

namespace tessera {

// Of one forward, as it was scheduled.
struct StepFacts {
  ForwardPhase phase = ForwardPhase::kPrefill;
  std::int64_t requests = 0;
  std::int64_t decoding = 0;  // of them
  std::int64_t tokens = 0;    // of all; padding is the decision's
  std::int64_t running = 0;   // requests that hold pages
  std::int64_t queued = 0;    // requests that wait for room
};

struct EngineProfile {
  std::vector<StepFacts> steps{};           // of every forward that was submitted
  std::vector<ProfiledForward> forwards{};  // of the first of them; all where no forward failed
  std::vector<HostSpan> host{};
  std::chrono::steady_clock::time_point origin{};  // to which the milliseconds count
};

}  // namespace tessera
