// Describes how the logits of sampled rows are changed before a token is chosen: by penalties, biases and masks.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/strong_id.h"

namespace tessera {

// Rows are numbered among the sampled rows of a forward. ops/sampling/logit_edits.h defines the arithmetic.
struct LogitEdits {
  std::vector<std::int32_t> starts;       // [sampled rows + 1]: row r has the edits starts[r] … starts[r + 1] - 1
  std::vector<TokenId> ids;               // [starts.back()]; each id at most once in a row
  std::vector<float> penalties;           // [starts.back()]: logit > 0 ? logit / penalty : logit * penalty
  std::vector<float> offsets;             // [starts.back()]: added after the penalty; may be -infinity
  std::vector<std::int32_t> masked_rows;  // rows with a mask, ascending
  std::vector<std::uint32_t> masks;       // [masked rows × ceil(vocab / 32)]; bit i is set if token i is allowed

  // Returns whether no row has edits. `starts` may be empty if no row has edits by id.
  bool empty() const { return ids.empty() && masked_rows.empty(); }
  // Removes all edits and keeps the memory.
  void clear() {
    starts.clear();
    ids.clear();
    penalties.clear();
    offsets.clear();
    masked_rows.clear();
    masks.clear();
  }
};

}  // namespace tessera
