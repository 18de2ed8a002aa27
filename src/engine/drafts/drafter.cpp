#include "tessera/engine/drafts/drafter.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr std::int64_t kShortestMatch = 3;
// The least length of a repetition for which the text's drafts are preferred: such a text mostly goes on repeating, and
// its drafts take no forward of the layer.
constexpr std::int64_t kMatchBeforeLayer = 16;

}  // namespace

Drafter::Drafter(std::int64_t most_of_text, std::int64_t most_of_layer) : text_pace_(most_of_text, 2) {
  if (most_of_layer > 0) layer_pace_.emplace(most_of_layer, most_of_layer);
}

std::int64_t Drafter::read(std::span<const TokenId> tokens, std::int64_t most) {
  const std::int64_t begin = text_.size();
  const std::int64_t end = std::min(std::ssize(tokens), begin + most);
  while (text_.size() < end) text_.append(tokens[static_cast<std::size_t>(text_.size())]);
  return text_.size() - begin;
}

std::int64_t Drafter::count_of_layer(std::int64_t room) {
  const std::int64_t count = layer_pace_ ? std::min(layer_pace_->next(), room) : 0;
  if (!layer_draft_) return 0;
  return layer_draft_->row < 0 ? std::min<std::int64_t>(count, 1) : count;
}

void Drafter::propose(std::span<const TokenId> tokens, std::int64_t room, std::vector<TokenId>& drafts) {
  drafts.clear();
  const std::int64_t end = std::ssize(tokens);
  const SuffixAutomaton::Match& match = text_.match();
  const std::int64_t of_text = std::min(text_pace_.next(), room);
  const std::int64_t of_layer = count_of_layer(room);
  const bool repeats = of_text > 0 && text_.size() == end && match.length >= kMatchBeforeLayer;
  by_layer_ = of_layer > 0 && !repeats;
  if (by_layer_) {
    drafts.assign(static_cast<std::size_t>(of_layer), TokenId(0));
    drafts[0] = layer_draft_->token;
    return;
  }
  if (text_.size() < end || match.length < kShortestMatch) return;
  // The drafts continue the text: past its last token, drafts are copied from drafts.
  for (std::int64_t i = 0; i < of_text; ++i) {
    const std::int64_t at = match.end + i;
    drafts.push_back(at < end ? tokens[static_cast<std::size_t>(at)] : drafts[static_cast<std::size_t>(at - end)]);
  }
}

void Drafter::judge(std::int64_t drafted, std::int64_t kept) {
  (by_layer_ ? *layer_pace_ : text_pace_).judge(drafted, kept);
}

}  // namespace tessera
