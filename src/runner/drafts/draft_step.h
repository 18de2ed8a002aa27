// Runs a next-token layer (model/layers/draft.h) between two forwards. All calls only enqueue, operator by operator.
//
//   forward   leaves the hidden states of its rows in draft_hidden
//   read      the body on the tokens behind these rows → hidden states of the wanted rows, in draft_hidden
//   draft     the head on these hidden states → the first drafts, in last_ids
//   read      the body on the first drafts; draft: the second drafts …
//   fetch     the drafts, for the host
//
// Drafts stay on the device: a row of read(), or of the forward that checks them, names them by
// ForwardBatch::input_rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/device/device.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/launcher.h"
#include "tessera/runner/memory/input_table.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

// The rows of a draft. Spans and references are borrowed for the call.
struct DraftInputs {
  // The row of position p has the id of token p + 1, but the position and the slot of token p. The hidden states of
  // the wanted rows are kept.
  const ForwardBatch& batch;
  const RopeAxes& rope_positions = kPlainRope;
  std::span<const std::int32_t> rows;  // [T]: the row of draft_hidden that each token continues
};

class DraftStep {
 public:
  // `parts` and `launcher` must outlive this object.
  DraftStep(RunnerParts& parts, Launcher& launcher) : parts_(parts), launcher_(launcher) {}

  // Preconditions of all calls: the model has a next-token layer, and no forward is in flight. kInternal if the inputs
  // disagree or a row does not exist.

  // Computes the rows. Leaves the wanted rows' hidden states in the first rows of draft_hidden, in order.
  Status read(const DraftInputs& inputs);
  // Writes the most probable token behind each of these `rows` of draft_hidden to last_ids, from `first_id` on; what
  // lies behind the end of last_ids is dropped. If `logits` [rows × ids of the layer's head] is not empty, waits and
  // writes them too. Waits as well if the head has ids of its own.
  Status draft(std::span<const std::int32_t> rows, std::int64_t first_id, std::span<float> logits = {});
  // Copies the first `count` ids of last_ids to the host. fetched() has them once the stream has passed.
  Status fetch(std::int64_t count);
  std::span<const TokenId> fetched() const { return fetched_; }

 private:
  Status check(const DraftInputs& inputs) const;
  Status check_rows(std::span<const std::int32_t> rows) const;
  Status allocate_host();
  // Moves the first `count` rows of draft_hidden to where the head reads.
  Status hand_over(std::int64_t count);
  Status run_head(std::span<const std::int32_t> rows, std::int64_t first_id, std::span<float> logits);
  Status name_as_target(std::int64_t first_id, std::int64_t count);

  RunnerParts& parts_;
  Launcher& launcher_;
  std::unique_ptr<HostAllocation> host_;  // [max_requests] ids
  std::span<TokenId> ids_;                // the whole of host_
  std::span<const TokenId> fetched_;
};

}  // namespace tessera
