// Tells whether drafting saves less time than it costs. While any request may draft, no step is scheduled before the
// previous step has ended. The device therefore waits in every step for the host, and for the next-token layer that
// makes the drafts. DraftCounts, which chooses the number of a step's drafts, does not count this wait, because the
// wait does not depend on that number. Steps without measured costs are not recorded.
//
// Only the engine's thread uses this class.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/engine/drafts/draft_counts.h"

namespace tessera {

class DraftProfit {
 public:
  // Records a step in which requests may draft. `waited_ms` is the time from the results of the step before to the
  // launch of this step. `forward_ms` is the time from this launch to this step's results.
  //
  // Predictions come from forwards with short contexts. For a step with prompts, they come from forwards that had only
  // prompts. If the forward took longer than predicted, the function assumes that the forward's drafts cost more by the
  // same factor. If the step has no prompts, the function assumes that the later steps, which the drafts save, would be
  // slower by this factor too. A wait longer than the forward is an outlier, so at most `forward_ms` of it counts.
  void add(const DraftSaving& saving, double waited_ms, double forward_ms) {
    const double slower = saving.predicted_ms > 0 ? std::clamp(forward_ms / saving.predicted_ms, 1.0, kMostSlower) : 1;
    const double gained_ms = saving.gained_ms * (saving.has_prompts ? 1 : slower);
    const double saved_ms = gained_ms - slower * saving.taken_ms - std::min(waited_ms, forward_ms);
    ++steps_;
    mean_ += (saved_ms - mean_) / static_cast<double>(std::min(steps_, kSteps));
  }
  // Returns true if at least kSteps steps were recorded and drafting took more time than it saved. Later steps count
  // more.
  bool is_loss() const { return steps_ >= kSteps && mean_ < 0; }
  void clear() { *this = {}; }

 private:
  static constexpr std::int64_t kSteps = 16;
  static constexpr double kMostSlower = 2;

  std::int64_t steps_ = 0;
  double mean_ = 0;  // saved time of a step, in milliseconds
};

}  // namespace tessera
