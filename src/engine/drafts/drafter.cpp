#include "tessera/engine/drafts/drafter.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

constexpr std::int64_t kShortestMatch = 3;
// If at least this many of the text's last tokens occurred earlier, drafts come from the text even if there is a layer.
// A repeated text mostly goes on repeating itself, and drafts from the text need no forward of the layer.
constexpr std::int64_t kMatchBeforeLayer = 16;
// The probability that is assumed for drafts from the text before a request's first drafts are judged. For drafts of a
// layer, the probability comes from DraftTrials.
constexpr double kKeptOfText = 0.6;
// A request with a next-token layer or draft model stops drafting after this many steps without a kept draft.
constexpr std::int64_t kPatience = 64;
// A request that drafts only from its text stops drafting after this many steps without a kept draft. The number is
// higher than kPatience, because texts may begin to repeat themselves late.
constexpr std::int64_t kPatienceOfText = 1024;
// While any request makes drafts, no step is scheduled ahead, and the layer reads every token. Both together cost about
// a twentieth of each step. A kept draft saves a whole step, so drafts break even at about one kept draft in 20 steps.
// Drafts count as worth their cost if at least one draft is kept in this many steps.
constexpr std::int64_t kStepsOfKept = 16;
constexpr std::int64_t kStepsToTell = 16;

}  // namespace

Drafter::Drafter(std::int64_t most_of_text, std::int64_t most_of_layer, std::shared_ptr<DraftTrials> trials)
    : most_of_text_(most_of_text), most_of_layer_(most_of_layer), trials_(std::move(trials)) {}

Drafter::~Drafter() {
  if (trials_ != nullptr) trials_->end(paid(), DraftTrials::Clock::now());
}

std::int64_t Drafter::read(std::span<const TokenId> tokens, std::int64_t most) {
  const std::int64_t begin = text_.size();
  const std::int64_t end = std::min(std::ssize(tokens), begin + most);
  while (text_.size() < end) text_.append(tokens[static_cast<std::size_t>(text_.size())]);
  return text_.size() - begin;
}

DraftOffer Drafter::offer(std::span<const TokenId> tokens) {
  const double of_text = text_pace_.next(kKeptOfText);
  const double of_layer = layer_pace_.next(typical_of_layer());
  const bool is_read = text_.size() == std::ssize(tokens);
  const std::int64_t length = is_read && most_of_text_ > 0 && of_text > 0 ? text_.match().length : 0;
  by_layer_ = most_of_layer_ > 0 && layer_row_ && of_layer > 0 && length < kMatchBeforeLayer;
  if (by_layer_) return {.acceptance = of_layer, .most = most_of_layer_, .by_layer = true};
  return length < kShortestMatch ? DraftOffer{} : DraftOffer{.acceptance = of_text, .most = most_of_text_};
}

void Drafter::propose(std::span<const TokenId> tokens, std::int64_t count, std::vector<TokenId>& drafts) const {
  drafts.clear();
  if (by_layer_) {
    drafts.assign(static_cast<std::size_t>(count), TokenId(0));
    return;
  }
  // Copies the tokens after the earlier occurrence. If they reach the end of the text, the copy continues with the
  // drafts made so far.
  const std::int64_t end = std::ssize(tokens);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = text_.match().end + i;
    drafts.push_back(at < end ? tokens[static_cast<std::size_t>(at)] : drafts[static_cast<std::size_t>(at - end)]);
  }
}

void Drafter::judge(std::int64_t drafted, std::int64_t kept) {
  if (by_layer_) {
    layer_pace_.judge(drafted, kept, typical_of_layer());
    if (trials_ != nullptr && !lacks_keys_) trials_->judge(drafted, kept);
  } else {
    text_pace_.judge(drafted, kept, kKeptOfText);
  }
  fruitless_ = kept > 0 ? 0 : fruitless_ + 1;
  ++steps_;
  kept_ += kept;
}

double Drafter::typical_of_layer() const { return trials_ != nullptr ? trials_->acceptance() : DraftTrials::kAssumed; }

std::optional<bool> Drafter::paid() const {
  if (steps_ < kStepsToTell || is_dismissed_) return std::nullopt;
  const bool paid = kStepsOfKept * kept_ >= steps_;
  if (lacks_keys_ && !paid) return std::nullopt;
  return paid;
}

bool Drafter::is_fruitless() const { return fruitless_ >= (most_of_layer_ > 0 ? kPatience : kPatienceOfText); }

}  // namespace tessera
