#include "tessera/runner/drafts/draft_step.h"

#include "tessera/comm/communicator.h"
#include "tessera/runner/ranks/rank_channel.h"
#include "tessera/runner/ranks/rank_group.h"

namespace tessera {
namespace {

// The limit of sent calls whose answers are not yet checked. The channel keeps only the answers to its last messages,
// so on_all_ranks() settles before it would lose an answer.
constexpr std::size_t kMostSent = RankChannel::kSlots - 2;

}  // namespace

Status DraftStep::on_all_ranks(const Send& send, const std::function<Status()>& local) {
  RankGroup* const ranks = model_.options.ranks;
  if (ranks == nullptr || !ranks->leads()) {
    Status own = local();
    if (!own.ok() && model_.options.communicator != nullptr) model_.options.communicator->abort(own.message());
    return own;
  }
  if (sent_.size() == kMostSent) TRY(settle());
  sent_.push_back(TRY(send(*ranks)));
  const Status own = local();
  return own.ok() ? own : settle(own);
}

Status DraftStep::settle(const Status& own) {
  if (sent_.empty()) return own;
  RankGroup& ranks = *model_.options.ranks;
  if (!own.ok()) ranks.communicator().abort(own.message());
  const std::vector<std::uint64_t> sent = std::move(sent_);
  sent_.clear();
  TRY(ranks.wait(sent.back()));
  return ranks.settle(ranks.cause(sent, {.status = own})).status;
}

Status DraftStep::read(const DraftInputs& inputs) {
  return on_all_ranks([&](RankGroup& ranks) { return ranks.send_draft_inputs(inputs); },
                      [&] { return here_.read(inputs); });
}

Status DraftStep::draft(const DraftRows& from, std::span<float> logits) {
  return on_all_ranks([&](RankGroup& ranks) { return ranks.send_draft_rows(from); },
                      [&] { return here_.draft(from, logits); });
}

Status DraftStep::fetch(std::int64_t count) {
  TRY(settle());
  return here_.fetch(count);
}

}  // namespace tessera
