// What a next-token layer computes between two forwards (draft_step.h). Spans and references are borrowed for the call.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/memory/input_table.h"

namespace tessera {

// The rows that the layer's body reads.
struct DraftInputs {
  // The row of position p has the id of token p + 1, but the position and the slot of token p. The hidden states of
  // the wanted rows are kept.
  const ForwardBatch& batch;
  const RopeAxes& rope_positions = kPlainRope;
  std::span<const std::int32_t> rows;  // [T]: the row of draft_hidden that each token continues
};

// The rows from which the layer's head drafts.
struct DraftRows {
  std::span<const std::int32_t> rows;  // rows of draft_hidden
  std::int64_t first_id = 0;           // the row of last_ids that takes the first draft
};

}  // namespace tessera
