// Says how a forward ended, on one rank or on all ranks.
#pragma once

#include "tessera/base/status.h"

namespace tessera {

struct ForwardEnd {
  Status status{};
  // True if a graph failed to launch on the rank where the fault began. If so, no result of the forward was kept.
  bool replay_failed = false;

  // Returns whether the graph caused the error. On a lost device every launch fails, so no graph is to blame.
  bool graph_failed() const { return replay_failed && status.code() != StatusCode::kDeviceLost; }
};

}  // namespace tessera
