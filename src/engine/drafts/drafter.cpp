#include "tessera/engine/drafts/drafter.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr std::int64_t kShortestMatch = 3;
constexpr std::int64_t kLongestPause = 32;

}  // namespace

std::int64_t Drafter::read(std::span<const TokenId> tokens, std::int64_t most) {
  const std::int64_t begin = text_.size();
  const std::int64_t end = std::min(std::ssize(tokens), begin + most);
  while (text_.size() < end) text_.append(tokens[static_cast<std::size_t>(text_.size())]);
  return text_.size() - begin;
}

void Drafter::propose(std::span<const TokenId> tokens, std::int64_t room, std::vector<TokenId>& drafts) {
  drafts.clear();
  if (pause_ > 0) {
    --pause_;
    return;
  }
  const std::int64_t end = std::ssize(tokens);
  const SuffixAutomaton::Match& match = text_.match();
  if (text_.size() < end || match.length < kShortestMatch) return;
  const std::int64_t count = std::min(room, length_);
  // Behind the text's end the drafts themselves go on.
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = match.end + i;
    drafts.push_back(at < end ? tokens[static_cast<std::size_t>(at)] : drafts[static_cast<std::size_t>(at - end)]);
  }
}

void Drafter::judge(std::int64_t drafted, std::int64_t kept) {
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
