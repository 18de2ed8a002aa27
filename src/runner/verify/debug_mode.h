// Debug mode: what every forward is checked for. Slow: it fills the arena
// before each forward and waits for the device after it. An error fails that forward and leaves the runner usable.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/piecewise/arena_history.h"
#include "tessera/runner/capture/graph_runner.h"
#include "tessera/runner/verify/nan_search.h"

namespace tessera {

class DebugMode {
 public:
  // Both outlive this. `ranks`: how many run each forward together; where there are several, a forward cannot be run
  // again by one of them, and NaNs are found without their origin.
  DebugMode(Stream& stream, const Arena& arena, int ranks)
      : history_(arena), nans_(stream, arena), can_run_again_(ranks == 1) {}

  // Before a forward of `runner` at `size` (captured, or bound): every address that its graphs hold is the one that the
  // runner would use now; the arena, but what earlier executables of this forward left for it, is filled with NaN.
  // kInternal names piece, size and argument.
  Status before(const GraphRunner& runner, std::int64_t size) const;
  // After it: no output row below `real_rows` is NaN, else kInternal names the operator that made the first NaN.
  Status after(const GraphRunner& runner, std::int64_t size, std::int64_t real_rows);
  // In between forwards are not checked.
  void pause() { paused_ = true; }
  void resume() { paused_ = false; }

  // Of the arena's forwards: where a view of an output is used, it says whether it still is what was made.
  ArenaHistory& history() { return history_; }

 private:
  ArenaHistory history_;
  NanSearch nans_;
  bool can_run_again_;
  bool paused_ = false;
};

}  // namespace tessera
