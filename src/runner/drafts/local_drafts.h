// Does this rank's part of the work of a next-token layer (draft_step.h). A draft of a few rows replays one graph
// (RunnerRole::kDraftDecode). All other work is enqueued operator by operator. Only draft() may wait for the device.
//
// Threads: the runner's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

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

  // Runs the layer on the rows of `inputs`, and leaves their hidden states in the first rows of draft_hidden. If
  // inputs.first_id is present, also drafts from the wanted rows.
  Status read(const DraftInputs& inputs);
  // Returns the captured size with which read() drafts from the batch in one graph. Returns nothing if no graph can run
  // the batch, because the batch has prompts, too many rows or no wanted row, or because no captured size is large
  // enough.
  std::optional<std::int64_t> graph_size(const ForwardBatch& batch) const;
  // Writes the most probable token of each row to last_ids, beginning at from.first_id, and leaves out tokens for which
  // last_ids has no room. If `logits` [rows × ids of the layer's head] is not empty, waits for the device and writes
  // the logits too.
  Status draft(const DraftRows& from, std::span<float> logits = {});
  // Copies the first `count` ids of last_ids to the host. fetched() returns them once the stream has completed the
  // copy.
  Status fetch(std::int64_t count);
  std::span<const TokenId> fetched() const { return fetched_; }
  // Returns whether the most recent read() or draft() failed because a graph could not be launched.
  bool replay_failed() const { return replay_failed_; }

 private:
  Status check(const DraftInputs& inputs) const;
  Status check_rows(std::span<const std::int32_t> rows) const;
  Status allocate_host();
  // Copies the first `count` rows of draft_hidden to the head's input.
  Status hand_over(std::int64_t count);
  Status run_head(const DraftRows& from, std::span<float> logits);
  // Copies the first `rows` hidden states that `runner` computed to draft_hidden.
  Status keep_hidden(const GraphRunner& runner, std::int64_t size, std::int64_t rows);
  // Replays the graph of a whole draft.
  Status replay(const DraftInputs& inputs, std::int64_t size);

  RunnerParts& parts_;
  Launcher& launcher_;
  std::unique_ptr<HostAllocation> host_;  // room for max_requests ids
  std::span<TokenId> ids_;                // the ids in host_
  std::span<const TokenId> fetched_;
  bool replay_failed_ = false;
};

}  // namespace tessera
