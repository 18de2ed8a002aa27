// What is changed in the logits of sampled rows before a token is chosen: penalties, biases and masks of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/strong_id.h"

namespace tessera {

// Rows are the sampled ones of a forward, by number. ops/sampling/logit_edits.h has the arithmetic.
struct LogitEdits {
  std::vector<std::int32_t> starts;       // [sampled rows + 1]: row r has the edits starts[r] … starts[r + 1] - 1
  std::vector<TokenId> ids;               // [starts.back()]; within a row each id at most once
  std::vector<float> penalties;           // [starts.back()]: logit > 0 ? logit / penalty : logit * penalty
  std::vector<float> offsets;             // [starts.back()]: then added; may be -infinity
  std::vector<std::int32_t> masked_rows;  // rows with a mask, ascending
  std::vector<std::uint32_t> masks;       // [masked rows × ceil(vocab / 32)]; bit i of a row: token i may be chosen

  // No row has any. `starts` may be empty where no row has edits by id.
  bool empty() const { return ids.empty() && masked_rows.empty(); }
  // Keeps the memory.
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
