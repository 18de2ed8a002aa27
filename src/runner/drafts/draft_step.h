// Runs a next-token layer (model/layers/draft.h) between two forwards: the body on the batch's rows, then the head on
// the wanted rows, whose most probable tokens are the drafts. Both run operator by operator.
//
//   forward   leaves the hidden states of its rows in draft_hidden
//   draft     tokens behind these rows → the first draft of each request; leaves its own hidden states
//   draft     the drafts → the second drafts …
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/launcher.h"
#include "tessera/runner/memory/input_table.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

// The rows of a draft. Spans and references are borrowed for the call.
struct DraftInputs {
  // The row of position p has the id of token p + 1, but the position and the slot of token p. Each wanted row gets a
  // draft; there are at most max_requests.
  const ForwardBatch& batch;
  const RopeAxes& rope_positions = kPlainRope;
  std::span<const std::int32_t> rows;  // [T]: the row of draft_hidden that each token continues
};

class DraftStep {
 public:
  // `parts` and `launcher` must outlive this object.
  DraftStep(RunnerParts& parts, Launcher& launcher) : parts_(parts), launcher_(launcher) {}

  // Computes the rows, waits, and writes the most probable token of each wanted row to `drafts` [wanted rows]. Leaves
  // the wanted rows' hidden states in the first rows of draft_hidden, in order. If `logits` [wanted rows × ids of the
  // layer's head] is not empty, they are written as well. Precondition: the model has a next-token layer, and no
  // forward is in flight. kInternal if the inputs disagree.
  Status run(const DraftInputs& inputs, std::span<TokenId> drafts, std::span<float> logits = {});

 private:
  Status check(const DraftInputs& inputs, std::size_t drafts) const;
  Status run_body(const DraftInputs& inputs);
  Status run_head(const DraftInputs& inputs, std::span<TokenId> drafts, std::span<float> logits);
  void name_as_target(std::span<TokenId> drafts) const;

  RunnerParts& parts_;
  Launcher& launcher_;
};

}  // namespace tessera
