// This rank's part of a next-token layer's work (draft_step.h). A whole draft of a few rows replays a graph
// (RunnerRole::kDraftDecode). All other work is enqueued operator by operator. Only draft() may wait for the device.
//
// Threads: the runner's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/device/device.h"
#include "tessera/runner/draft_inputs.h"
#include "tessera/runner/launcher.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

class LocalDrafts {
 public:
  // `parts` and `launcher` must outlive this object.
  LocalDrafts(RunnerParts& parts, Launcher& launcher) : parts_(parts), launcher_(launcher) {}

  // Preconditions of all calls: the model has a next-token layer or a draft model, and no forward is in flight. The
  // calls return kInternal if the inputs disagree or a row does not exist.

  // Computes the rows. Leaves the wanted rows' hidden states in the first rows of draft_hidden, in order. Drafts from
  // them if inputs.first_id is present.
  Status read(const DraftInputs& inputs);
  // Returns the captured size with which read() drafts from the batch in one graph. Returns nothing if no graph serves
  // the batch, because it has prompts, too many rows or no wanted row, or because no large enough size is captured.
  std::optional<std::int64_t> graph_size(const ForwardBatch& batch) const;
  // Writes the most probable token of each row to last_ids, beginning at from.first_id, and drops tokens past the end
  // of last_ids. If `logits` [rows × ids of the layer's head] is not empty, waits and writes the logits too.
  Status draft(const DraftRows& from, std::span<float> logits = {});
  // Copies the first `count` ids of last_ids to the host. fetched() has them once the stream has completed the copy.
  Status fetch(std::int64_t count);
  std::span<const TokenId> fetched() const { return fetched_; }
  // Returns whether the last read() or draft() failed because a graph could not be launched.
  bool replay_failed() const { return replay_failed_; }

 private:
  Status check(const DraftInputs& inputs) const;
  Status check_rows(std::span<const std::int32_t> rows) const;
  Status allocate_host();
  // Copies the first `count` rows of draft_hidden to the head's input.
  Status hand_over(std::int64_t count);
  Status run_head(const DraftRows& from, std::span<float> logits);
  // Replays the graph of a whole draft.
  Status replay(const DraftInputs& inputs, std::int64_t size);

  RunnerParts& parts_;
  Launcher& launcher_;
  std::vector<std::int32_t> in_order_;    // 0, 1, 2, …: rows of draft_hidden
  std::unique_ptr<HostAllocation> host_;  // [max_requests] ids
  std::span<TokenId> ids_;                // the whole of host_
  std::span<const TokenId> fetched_;
  bool replay_failed_ = false;
};

}  // namespace tessera
