#include "tessera/runner/drafts/draft_step.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tessera {

template <class Call>
Status DraftStep::send(const Call& call) {
  if (sent_.is_full()) TRY(settle());
  return sent_.send(call);
}

Status DraftStep::settle(const Status& own) {
  return ended(TRY(sent_.settle({.status = own, .replay_failed = !own.ok() && here_.replay_failed()})));
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
  TRY(send(inputs));
  if (inputs.first_id)
    if (const std::optional<std::int64_t> size = here_.graph_size(inputs.batch)) replayed_.push_back(*size);
  return settle_failed(here_.read(inputs));
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
  TRY(send(from));
  return settle_failed(here_.draft(from, logits));
}

Status DraftStep::fetch(std::int64_t count) {
  TRY(settle());
  return here_.fetch(count);
}

}  // namespace tessera
