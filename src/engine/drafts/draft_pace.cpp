#include "tessera/engine/drafts/draft_pace.h"

namespace tessera {
namespace {

constexpr std::int64_t kLongestPause = 32;

}  // namespace

std::int64_t DraftPace::next() {
  if (pause_ == 0) return length_;
  --pause_;
  return 0;
}

void DraftPace::judge(std::int64_t drafted, std::int64_t kept) {
  if (kept == 0) {
    length_ = 1;
    pause_ = next_pause_;
    next_pause_ = std::min(2 * next_pause_, kLongestPause);
    return;
  }
  next_pause_ = 1;
  if (kept < drafted) {
    length_ = kept + 1;
  } else if (kept >= length_) {
    length_ = std::min(most_, 2 * length_);
  }
}

}  // namespace tessera
