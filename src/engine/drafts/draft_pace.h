// Estimates the probability that a request's next drafts are kept. It counts how many of the earlier drafts were kept.
// If the estimate is low and a step keeps none of its drafts, the next steps draft nothing: at first one step, then
// two, four and so on.
#pragma once

#include <cstdint>

namespace tessera {

class DraftPace {
 public:
  // `first`: the probability that is assumed before any draft was judged.
  explicit DraftPace(double first) : first_(first) {}

  // Returns the probability that a draft is kept if all drafts before it are kept. Returns 0 in a pause. Call it once
  // for each decode.
  double next();
  // Records how many of the drafts of the last step were kept.
  void judge(std::int64_t drafted, std::int64_t kept);

 private:
  double first_;
  double kept_ = 2 * first_;     // number of kept drafts; older drafts count less
  double tried_ = 2;             // kept drafts and the first refused draft of each step; older drafts count less
  std::int64_t pause_ = 0;       // number of coming decodes that draft nothing
  std::int64_t next_pause_ = 1;  // the value of pause_ after the next decode without a kept draft
};

}  // namespace tessera
