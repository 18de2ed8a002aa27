// Estimates how probably a request's drafts are kept, from those that were. After a step in which a poor source's
// drafts were all refused, the next steps draft nothing: at first one step, then two, four and so on.
#pragma once

#include <cstdint>

namespace tessera {

class DraftPace {
 public:
  // `first`: the probability that is assumed before any draft was judged.
  explicit DraftPace(double first) : first_(first) {}

  // Returns the probability that a draft behind kept ones is kept; 0 in a pause. Call it once for each decode.
  double next();
  // Records how many of the drafts of the last step were kept.
  void judge(std::int64_t drafted, std::int64_t kept);

 private:
  double first_;
  double kept_ = 2 * first_;     // drafts that were kept, earlier ones counting less
  double tried_ = 2;             // drafts that were kept, or refused behind kept ones
  std::int64_t pause_ = 0;       // decodes that draft nothing
  std::int64_t next_pause_ = 1;  // the value of pause_ after the next decode without a kept draft
};

}  // namespace tessera
