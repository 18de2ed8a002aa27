// Selects the rows of a forward's outputs that verify() compares, and finds their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "tessera/piecewise/stitching.h"
#include "tessera/runner/verify/verify_outcome.h"

namespace tessera {

class ComparedRows {
 public:
  // Selects the rows of the given tokens. `tokens` has their indices in the batch. Some outputs (Symbol::kRows) have
  // rows only for the tokens whose logits are wanted. Precondition: row i of such an output belongs to token tokens[i].
  void set(std::vector<std::int32_t> tokens) {
    tokens_ = std::move(tokens);
    wanted_.resize(tokens_.size());
    std::iota(wanted_.begin(), wanted_.end(), 0);
  }
  // Selects the rows of the first `count` tokens.
  void set_first(std::size_t count) {
    tokens_.resize(count);
    std::iota(tokens_.begin(), tokens_.end(), 0);
    wanted_ = tokens_;
  }
  // Returns the row indices of the selected tokens in an output.
  std::span<const std::int32_t> of(const Slot& output) const {
    return output.type.shape[0].uses(ir::Symbol::kRows) ? wanted_ : tokens_;
  }

 private:
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> wanted_;
};

// Returns the memory ranges of the given rows of an output. Row 0 lies at `first`. Neighbouring rows are joined into
// one range.
inline std::vector<MemoryRange> ranges_of(std::span<const std::int32_t> rows, DeviceAddress first,
                                          std::size_t row_bytes) {
  std::vector<MemoryRange> ranges;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0 && rows[i] == rows[i - 1] + 1)
      ranges.back().bytes += row_bytes;
    else
      ranges.push_back({first + static_cast<std::size_t>(rows[i]) * row_bytes, row_bytes});
  }
  return ranges;
}

}  // namespace tessera
