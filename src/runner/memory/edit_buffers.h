// Static buffers of logit edits and of the tokens whose log-probability is wanted, for one run of the graphs choose and
// logprobs: at one address for the runner's life, as the InputBuffers are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/piecewise/executable.h"
#include "tessera/runner/logit_edits.h"

namespace tessera {

class EditBuffers {
 public:
  static Result<EditBuffers> create(Device& device, std::int64_t vocab_size);
  // What it takes of the device's memory.
  static std::int64_t bytes_needed(std::int64_t vocab_size);

  // Adds the address of every input, by the graphs' names.
  void add_to(ExternalValues& externals) const;
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }

  // How many of the sampled rows from `first` on, at most `most`, have edits that fit at once: 1 or more.
  std::int64_t rows_that_fit(const LogitEdits& edits, std::int64_t first, std::int64_t most) const;
  // The edits of `rows` rows, for rows 0, 1, 2 … of the graph; rows up to `padded_rows` have none.
  // Preconditions: rows_that_fit says so, rows <= padded_rows <= kMaxChoiceRows.
  Status stage_edits(const LogitEdits& edits, std::int64_t first, std::int64_t rows, std::int64_t padded_rows,
                     Stream& stream);
  // `sampled`, on the device, are the targets of the first rows, [num_sampled]; `given` of the others.
  Status stage_targets(DeviceAddress sampled, std::int64_t num_sampled, std::span<const TokenId> given, Stream& stream);

 private:
  // Offsets in the memory.
  struct Layout {
    std::int64_t rows, ids, penalties, offsets, masks, targets, end;
  };
  static Layout layout_of(std::int64_t vocab_size);
  EditBuffers() = default;

  Layout layout_{};
  std::int64_t vocab_size_ = 0;
  std::unique_ptr<Allocation> memory_;
  std::vector<std::int32_t> rows_;  // [3 × kMaxChoiceRows] on the host: first, count, mask
};

}  // namespace tessera
