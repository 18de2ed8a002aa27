// Static buffers for logit edits and for the tokens that get a log-probability. The buffers hold the inputs of one run
// of the graphs `choose` and `logprobs` (runner_spec.h). Their addresses are fixed for the runner's life, like the
// addresses of InputBuffers.
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

  // Adds the address of every input, under the input's name in the graphs.
  void add_to(ExternalValues& externals) const;
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }

  // Returns how many consecutive sampled rows, beginning with row `first`, fit into the buffers together with their
  // edits. The result is at least 1 and at most `most`.
  std::int64_t rows_that_fit(const LogitEdits& edits, std::int64_t first, std::int64_t most) const;
  // Stages the edits of the sampled rows `first` … `first` + `rows` - 1 as rows 0 … `rows` - 1 of the graph. The
  // graph's next rows, up to `padded_rows`, get no edits. Preconditions: rows <= rows_that_fit(), rows <= padded_rows
  // <= kMaxChoiceRows.
  Status stage_edits(const LogitEdits& edits, std::int64_t first, std::int64_t rows, std::int64_t padded_rows,
                     Stream& stream);
  // Stages the target tokens. The targets of the first num_sampled rows come from `sampled` (device memory,
  // [num_sampled]). The targets of the other rows come from `given`.
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
  // Three lists on the host, [3 × kMaxChoiceRows]: the index of each row's first edit, its number of edits, and the
  // index of its mask.
  std::vector<std::int32_t> rows_;
};

}  // namespace tessera
