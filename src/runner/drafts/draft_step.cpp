#include "tessera/runner/drafts/draft_step.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/comm/communicator.h"
#include "tessera/runner/ranks/rank_channel.h"
#include "tessera/runner/ranks/rank_group.h"

namespace tessera {
namespace {

// The maximum number of sent calls whose answers are not checked yet. The channel keeps only the answers to its last
// kSlots messages, so on_all_ranks() calls settle() before the channel would drop an unchecked answer.
constexpr std::size_t kMostSent = RankChannel::kSlots - 2;

}  // namespace

Status DraftStep::on_all_ranks(const Send& send, const std::function<Status()>& local) {
  RankGroup* const ranks = parts_.model.options.ranks;
  if (ranks == nullptr || !ranks->leads()) {
    const Status own = local();
    if (own.ok()) return own;
    if (parts_.model.options.communicator != nullptr) parts_.model.options.communicator->abort(own.message());
    return settle(own);
  }
  if (sent_.size() == kMostSent) TRY(settle());
  sent_.push_back(TRY(send(*ranks)));
  const Status own = local();
  return own.ok() ? own : settle(own);
}

Status DraftStep::settle(const Status& own) {
  const ForwardEnd here{.status = own, .replay_failed = !own.ok() && here_.replay_failed()};
  if (sent_.empty()) return ended(here);
  RankGroup& ranks = *parts_.model.options.ranks;
  if (!own.ok()) ranks.communicator().abort(own.message());
  const std::vector<std::uint64_t> sent = std::move(sent_);
  sent_.clear();
  TRY(ranks.wait(sent.back()));
  return ended(ranks.settle(ranks.cause(sent, here)));
}

Status DraftStep::ended(const ForwardEnd& end) {
  std::vector<std::int64_t> sizes = std::exchange(replayed_, {});
  std::ranges::sort(sizes);
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  for (const std::int64_t size : sizes) {
    if (end.status.ok()) failures_.forget(size);
    if (end.graph_failed() && failures_.add(size))
      TRY(captures_.drop(parts_.runner(RunnerRole::kDraftDecode), size, end.status));
  }
  return end.status;
}

Status DraftStep::read(const DraftInputs& inputs) {
  return on_all_ranks([&](RankGroup& ranks) { return ranks.send_draft_inputs(inputs); },
                      [&] {
                        if (inputs.first_id)
                          if (const std::optional<std::int64_t> size = here_.graph_size(inputs.batch))
                            replayed_.push_back(*size);
                        return here_.read(inputs);
                      });
}

Result<bool> DraftStep::has_graph(const ForwardBatch& batch) {
  GraphRunner* const runner = parts_.find_runner(RunnerRole::kDraftDecode);
  if (runner == nullptr || !dispatcher_.table().graphs_enabled) return false;
  if (parts_.model.options.capture == CaptureMode::kLazy && batch.is_decode_with_drafts()) {
    const std::vector<std::int64_t> pending = runner->pending();
    const std::int64_t size = runner->padded_size(batch.num_tokens());
    if (batch.num_tokens() <= size && std::ranges::binary_search(pending, size)) {
      TRY(settle());
      const Status captured = captures_.capture(*runner, size);
      if (captured.code() == StatusCode::kDeviceLost) return captured;
    }
  }
  return here_.graph_size(batch).has_value();
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
