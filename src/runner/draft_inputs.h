// Inputs of a next-token layer or a draft model, which runs between two forwards (draft_step.h). The spans and
// references in the inputs must stay valid until the call that takes the inputs returns.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/memory/input_table.h"

namespace tessera {

// The rows that the layer's body reads.
struct DraftInputs {
  // In a next-token layer, row p has the position and the slot of token p, but the id of token p + 1. In a draft model,
  // row p has the id of token p. The hidden state of row p is kept in row p of draft_hidden
  // (drafts/draft_hidden.h).
  const ForwardBatch& batch;
  const RopeAxes& rope_positions = kPlainRope;
  std::span<const std::int32_t> rows;  // [T]: the row of draft_hidden that each token continues
  // If present, the head also drafts from the wanted rows, and first_id has the same meaning as DraftRows::first_id.
  std::optional<std::int64_t> first_id = std::nullopt;
};

// The rows from which the layer's head drafts.
struct DraftRows {
  std::span<const std::int32_t> rows;  // rows of draft_hidden
  std::int64_t first_id = 0;           // index in last_ids (the device's sampled ids) for the first draft
};

}  // namespace tessera
