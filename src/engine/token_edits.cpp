#include "tessera/engine/token_edits.h"

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
  if (repetition_penalty_ != 1 && request.input_embeds.empty())
    for (const TokenId token : request.prompt) edit(token).penalty = static_cast<float>(repetition_penalty_);
}

TokenEdits::Edit& TokenEdits::edit(TokenId token) {
  const auto [it, added] = place_.try_emplace(token, edits_.size());
  if (added) edits_.push_back({.token = token});
  return edits_[it->second];
}

void TokenEdits::count(TokenId token) {
  if (!penalises_) return;
  Edit& counted = edit(token);
  ++counted.count;
  counted.penalty = static_cast<float>(repetition_penalty_);
}

bool TokenEdits::any(std::int64_t generated) const {
  if (penalises_ || generated < min_new_tokens_) return !edits_.empty();
  return std::any_of(edits_.begin(), edits_.end(), [](const Edit& e) { return e.bias != 0; });
}

void TokenEdits::append(std::int64_t generated, LogitEdits& edits) const {
  for (const Edit& e : edits_) {
    const bool forbidden = e.ends_text && generated < min_new_tokens_;
    double offset = e.bias;
    if (e.count > 0) offset -= frequency_penalty_ * static_cast<double>(e.count) + presence_penalty_;
    if (forbidden) offset = -std::numeric_limits<double>::infinity();
    if (e.penalty == 1 && offset == 0) continue;
    edits.ids.push_back(e.token);
    edits.penalties.push_back(e.penalty);
    edits.offsets.push_back(static_cast<float>(offset));
  }
}

}  // namespace tessera
