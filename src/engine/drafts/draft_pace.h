// Decides how many tokens are drafted for a request. If all drafts were kept, the next step drafts twice as many;
// otherwise it drafts one more than were kept. After a decode without any kept draft the next decodes draft nothing: at
// first one decode, then two, four and so on.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera {

class DraftPace {
 public:
  // Drafts at most `most` tokens and at least 1; starts with `first`.
  DraftPace(std::int64_t most, std::int64_t first) : most_(most), length_(std::min(most, first)) {}

  // Returns how many tokens to draft, 0 in a pause. Call it once for each decode.
  std::int64_t next();
  // Records how many of the drafts of the last step were kept.
  void judge(std::int64_t drafted, std::int64_t kept);

 private:
  std::int64_t most_;
  std::int64_t length_;          // drafted at most
  std::int64_t pause_ = 0;       // decodes that draft nothing
  std::int64_t next_pause_ = 1;  // the value of pause_ after the next decode without a kept draft
};

}  // namespace tessera
