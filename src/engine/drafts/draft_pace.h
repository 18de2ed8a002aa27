// Estimates the probability that a request's next drafts are kept. It counts how many of the request's earlier drafts
// were kept. While it has counted only few drafts, the estimate stays close to the typical probability of other
// requests. If the estimate is low and a step keeps none of its drafts, the next steps draft nothing: at first one
// step, then two, four and so on.
#pragma once

#include <cstdint>

namespace tessera {

class DraftPace {
 public:
  // Returns the probability that a draft is kept if all drafts before it are kept. `typical` is this probability for
  // drafts of other requests. Returns 0 in a pause. Call it once for each decode.
  double next(double typical);
  // Records how many of the drafts of the last step were kept.
  void judge(std::int64_t drafted, std::int64_t kept, double typical);

 private:
  // The weight of `typical` before the first pause, as a number of drafts. Older steps count less (kFading), so the
  // request's own drafts together weigh at most as much as the drafts of ten steps.
  static constexpr double kTypicalWeight = 2;

  double estimate(double typical) const { return (kept_ + weight_ * typical) / (tried_ + weight_); }

  double kept_ = 0;   // number of kept drafts; older drafts count less
  double tried_ = 0;  // kept drafts and the first refused draft of each step; older drafts count less
  double weight_ = kTypicalWeight;
  std::int64_t pause_ = 0;       // number of coming decodes that draft nothing
  std::int64_t next_pause_ = 1;  // the value of pause_ after the next decode without a kept draft
};

}  // namespace tessera
