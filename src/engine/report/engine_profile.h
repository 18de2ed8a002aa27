// The profile of an engine's steps: the facts of each forward, and what host and device did over time.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tessera/engine/stats/graph_use.h"
#include "tessera/runner/step_profiler.h"

namespace tessera {

// Facts of one forward as it was scheduled.
struct StepFacts {
  ForwardPhase phase = ForwardPhase::kPrefill;
  std::int64_t requests = 0;
  std::int64_t decoding = 0;  // number of `requests` that decode
  std::int64_t tokens = 0;    // tokens of all requests, without padding
  std::int64_t running = 0;   // requests that hold pages
  std::int64_t queued = 0;    // requests that wait for room
};

struct EngineProfile {
  std::vector<StepFacts> steps{};  // one entry for every forward that was submitted
  // Entry i belongs to steps[i]. If a forward failed, the last steps have no entry.
  std::vector<ProfiledForward> forwards{};
  std::vector<HostSpan> host{};
  std::chrono::steady_clock::time_point origin{};  // the time from which the milliseconds count
};

}  // namespace tessera
