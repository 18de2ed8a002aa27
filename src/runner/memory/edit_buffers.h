// Static buffers of logit edits and of the tokens whose log-probability is wanted, for one run of the graphs `choose`
// and `logprobs`. Like the addresses of InputBuffers, theirs are fixed for the runner's life.
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
  // Returns the device memory that the buffers take, in bytes.
  static std::int64_t bytes_needed(std::int64_t vocab_size);

  // Adds the address of every input under the graphs' names.
  void add_to(ExternalValues& externals) const;
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }

  // Returns how many sampled rows from `first` on, up to `most`, have edits that fit into the buffers at once: 1 or
  // more.
  std::int64_t rows_that_fit(const LogitEdits& edits, std::int64_t first, std::int64_t most) const;
  // Stages the edits of `rows` rows as rows 0, 1, 2 … of the graph; the rows from there to `padded_rows` get none.
  // Preconditions: rows <= rows_that_fit(), rows <= padded_rows <= kMaxChoiceRows.
  Status stage_edits(const LogitEdits& edits, std::int64_t first, std::int64_t rows, std::int64_t padded_rows,
                     Stream& stream);
  // Stages the target tokens. The first num_sampled rows take them from `sampled` (device memory, [num_sampled]), the
  // other rows from `given`.
  Status stage_targets(DeviceAddress sampled, std::int64_t num_sampled, std::span<const TokenId> given, Stream& stream);

 private:
  // Offsets in the memory, in bytes.
  struct Layout {
    std::int64_t rows, ids, penalties, offsets, masks, targets, end;
  };
  static Layout layout_of(std::int64_t vocab_size);
  EditBuffers() = default;

  Layout layout_{};
  std::int64_t vocab_size_ = 0;
  std::unique_ptr<Allocation> memory_;
  std::vector<std::int32_t> rows_;  // [3 × kMaxChoiceRows] on the host: each row's first edit, number of edits and mask
};

}  // namespace tessera
