// Describes how the logits of sampled rows are changed before a token is chosen: by penalties, biases and masks.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/strong_id.h"

namespace tessera {

// Rows are numbered among the sampled rows of a forward. ops/sampling/logit_edits.h defines the arithmetic.
struct LogitEdits {
  std::vector<std::int32_t> starts;  // [sampled rows + 1]: row r has the edits starts[r] … starts[r + 1] - 1
  std::vector<TokenId> ids;      // the token of each edit, [starts.back()]; a row has at most one edit for each token
  std::vector<float> penalties;  // [starts.back()]: logit > 0 ? logit / penalty : logit * penalty
  std::vector<float> offsets;    // added after the penalty, [starts.back()]; may be -infinity
  std::vector<std::int32_t> masked_rows;  // rows with a mask, ascending
  std::vector<std::uint32_t> masks;       // [masked rows × ceil(vocab / 32)]; bit i is set if token i is allowed

  // Returns true if no row has an edit and no row has a mask. `starts` may be empty if no row has edits of single
  // tokens.
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
