// Debug mode checks every forward. It is slow, because it fills the arena before each forward and waits for the device
// after each forward. If a check finds an error, that forward fails, and the runner stays usable.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/piecewise/arena_history.h"
#include "tessera/runner/graphs/graph_runner.h"
#include "tessera/runner/verify/nan_search.h"

namespace tessera {

class DebugMode {
 public:
  // `stream` and `arena` must outlive this object. `runs_alone` is RunnerOptions::runs_alone(). If it
  // is false, a single device cannot run a forward again, so the error about a NaN does not name the operator that made
  // the NaN.
  DebugMode(Stream& stream, const Arena& arena, bool runs_alone)
      : history_(arena), nans_(stream, arena), can_run_again_(runs_alone) {}

  // Called before a forward of `runner` at `size`, which is captured or at least bound (Executable::bind). Checks that
  // the runner's graphs contain the addresses that the runner would use now. If they do not, returns kInternal, and the
  // message names the piece, the size and the argument. Then fills the arena with NaN, except for values that an
  // earlier executable of the same forward left there for this runner.
  Status before(const GraphRunner& runner, std::int64_t size) const;
  // Called after the forward. Checks that no output row below `real_rows` has a NaN. If one has, returns kInternal, and
  // the message names the operator that made the first NaN.
  Status after(const GraphRunner& runner, std::int64_t size, std::int64_t real_rows);
  // Turns the checks off until resume().
  void pause() { paused_ = true; }
  void resume() { paused_ = false; }

  // Returns the record of forwards that used the arena. It shows whether the memory of an output still contains what
  // its forward wrote.
  ArenaHistory& history() { return history_; }

 private:
  ArenaHistory history_;
  NanSearch nans_;
  bool can_run_again_;
  bool paused_ = false;
};

}  // namespace tessera
