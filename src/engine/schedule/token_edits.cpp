#include "tessera/engine/schedule/token_edits.h"

#include <algorithm>
#include <limits>

namespace tessera {

TokenEdits::TokenEdits(const Request& request, std::span<const TokenId> end_ids)
    : repetition_penalty_(request.sampling.repetition_penalty),
      frequency_penalty_(request.sampling.frequency_penalty),
      presence_penalty_(request.sampling.presence_penalty),
      penalises_(repetition_penalty_ != 1 || frequency_penalty_ != 0 || presence_penalty_ != 0),
      min_new_tokens_(request.stop.min_new_tokens) {
  for (const auto& [token, bias] : request.sampling.logit_bias) edit(token).bias += bias;
  if (min_new_tokens_ > 0)
    for (const TokenId token : end_ids) edit(token).ends_text = true;
  for (const std::vector<TokenId>& word : request.sampling.bad_words) add_bad_word(word);
  if (repetition_penalty_ != 1 && request.input_embeds.empty())
    for (const TokenId token : request.prompt) edit(token).penalty = static_cast<float>(repetition_penalty_);
}

TokenEdits::Edit& TokenEdits::edit(TokenId token) {
  const auto [it, added] = place_.try_emplace(token, edits_.size());
  if (added) edits_.push_back({.token = token});
  return edits_[it->second];
}

void TokenEdits::add_bad_word(std::span<const TokenId> word) {
  Edit& last = edit(word.back());
  if (word.size() == 1) {
    last.is_bad = true;
    return;
  }
  const std::span<const TokenId> before = word.first(word.size() - 1);
  words_.push_back({.before = {before.begin(), before.end()}, .last = place_.at(word.back())});
  longest_ = std::max(longest_, before.size());
  ending_.reserve(longest_ + 1);
}

void TokenEdits::follow_words(TokenId token) {
  ending_.push_back(token);
  if (ending_.size() > longest_) ending_.erase(ending_.begin());
  for (const Word& word : words_) edits_[word.last].completes_bad = false;
  for (const Word& word : words_) {
    const bool matches =
        word.before.size() <= ending_.size() && std::equal(word.before.rbegin(), word.before.rend(), ending_.rbegin());
    if (matches) edits_[word.last].completes_bad = true;
  }
}

void TokenEdits::count(TokenId token) {
  if (!words_.empty()) follow_words(token);
  if (!penalises_) return;
  Edit& counted = edit(token);
  ++counted.count;
  counted.penalty = static_cast<float>(repetition_penalty_);
}

bool TokenEdits::any(std::int64_t generated) const {
  if (penalises_ || generated < min_new_tokens_) return !edits_.empty();
  return std::any_of(edits_.begin(), edits_.end(),
                     [](const Edit& e) { return e.bias != 0 || e.is_bad || e.completes_bad; });
}

bool TokenEdits::forbids(TokenId token, std::int64_t generated) const {
  const auto it = place_.find(token);
  return it != place_.end() && edits_[it->second].forbidden(generated, min_new_tokens_);
}

void TokenEdits::append(std::int64_t generated, LogitEdits& edits) const {
  for (const Edit& e : edits_) {
    double offset = e.bias;
    if (e.count > 0) offset -= frequency_penalty_ * static_cast<double>(e.count) + presence_penalty_;
    if (e.forbidden(generated, min_new_tokens_)) offset = -std::numeric_limits<double>::infinity();
    if (e.penalty == 1 && offset == 0) continue;
    edits.ids.push_back(e.token);
    edits.penalties.push_back(e.penalty);
    edits.offsets.push_back(static_cast<float>(offset));
  }
}

}  // namespace tessera
