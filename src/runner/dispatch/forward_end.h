// How a forward ended, on one rank or on all.
#pragma once

#include "tessera/base/status.h"

namespace tessera {

struct ForwardEnd {
  Status status{};
  // True if a graph's launch failed on the rank where the fault began, and nothing of the forward was kept.
  bool replay_failed = false;

  // Returns whether the graph is to blame. On a lost device every launch fails.
  bool graph_failed() const { return replay_failed && status.code() != StatusCode::kDeviceLost; }
};

}  // namespace tessera
