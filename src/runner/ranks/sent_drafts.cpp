#include "tessera/runner/ranks/sent_drafts.h"

#include <utility>

#include "tessera/comm/communicator.h"
#include "tessera/runner/ranks/rank_channel.h"
#include "tessera/runner/ranks/rank_group.h"

namespace tessera {
namespace {

// The maximum number of sent calls whose answers are not checked yet. The channel keeps only the answers to its last
// kSlots messages.
constexpr std::size_t kMostSent = RankChannel::kSlots - 2;

}  // namespace

bool SentDrafts::is_full() const { return sends() && sent_.size() == kMostSent; }

bool SentDrafts::sends() const { return ranks_ != nullptr && ranks_->leads(); }

Status SentDrafts::send(const DraftInputs& inputs) {
  if (sends()) sent_.push_back(TRY(ranks_->send_draft_inputs(inputs)));
  return ok_status();
}

Status SentDrafts::send(const DraftRows& rows) {
  if (sends()) sent_.push_back(TRY(ranks_->send_draft_rows(rows)));
  return ok_status();
}

Result<ForwardEnd> SentDrafts::settle(const ForwardEnd& own) {
  if (!own.status.ok() && communicator_ != nullptr) communicator_->abort(own.status.message());
  if (sent_.empty()) return own;
  const std::vector<std::uint64_t> sent = std::exchange(sent_, {});
  TRY(ranks_->wait(sent.back()));
  return ranks_->settle(ranks_->cause(sent, own));
}

}  // namespace tessera
