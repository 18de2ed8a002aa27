// Holds the static inputs of a model's graphs. The StepBuffer contains the inputs that the host stages. For each bucket
// (a padded number of tokens T and of rows R) these inputs are packed without gaps. Row inputs end at a boundary that
// is the same for all buckets, and token inputs begin there. The inputs of a small forward therefore form one short
// range, which takes one copy. The device writes last_ids, which therefore has memory of its own.
//
//   R=4 begins             R=2 begins     boundary     T=2 ends      T=8 ends
//   [wanted temperature …  |wanted …      ][ids …      |             ]
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/model.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/ops/contract/step_buffer.h"
#include "tessera/piecewise/external_values.h"
#include "tessera/runner/memory/input_table.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

struct InputLimits {
  std::int64_t max_tokens = 0;    // maximum number of tokens in a forward, padding included
  std::int64_t max_requests = 0;  // length of last_ids
  std::int64_t max_rows = 0;      // maximum number of wanted rows in one run of the head
  std::vector<std::string> cache_groups;
  ExtraInputs extra = {};
};

// Returns the limits of a model's graphs.
InputLimits input_limits(const ModelGraphs& graphs, const RunnerOptions& options);

class InputBuffers {
 public:
  // Reserves space for the inputs in the step buffer `step`, which must outlive this object. The caller must allocate
  // the step buffer's memory before it stages anything.
  static Result<InputBuffers> create(Device& device, InputLimits limits, StepBuffer& step);
  // Returns the device memory that the inputs take in bytes, including their part of the step buffer.
  static std::int64_t bytes_needed(const InputLimits& limits);

  // Adds the address of every input, under the input's name in the graphs.
  void add_to(ExternalValues& externals) const;
  const InputLimits& limits() const { return limits_; }
  std::int64_t bytes() const { return bytes_needed(limits_); }

  // Stages the batch's token inputs as the first rows. The rows after them, up to padded_tokens, get the padding id,
  // position 0 and slot 0, which no request owns. The step buffer's next upload transfers them. Returns kInternal if
  // padded_tokens exceeds the limits. Precondition: tokens.batch.num_tokens() <= padded_tokens.
  Status stage_tokens(const StagedTokens& tokens, std::int64_t padded_tokens);
  // Stages the indices of the body's output rows that the head computes. A padding row has index -1, for which the
  // graph reads zeros. `sampling` describes the first rows. The other rows are sampled greedily. Each row gets the
  // adapter that its token had in the most recent call of stage_tokens(). The step buffer's next upload transfers all
  // of this.
  Status stage_rows(std::span<const std::int32_t> rows, std::span<const SampleRow> sampling, std::int64_t padded_rows);
  // Copies `count` sampled ids from the arena to last_ids, beginning at its element `first`. All this memory is on the
  // device.
  Status keep_sampled(DeviceAddress sampled_ids, std::int64_t first, std::int64_t count, Stream& stream);
  // Downloads the first elements of last_ids to `ids`, as many as `ids` holds. The ids are valid once the stream
  // has completed the copy.
  Status download_sampled(std::span<TokenId> ids, Stream& stream) const;

 private:
  InputBuffers(InputLimits limits, StepBuffer& step);
  // Returns how many bytes the first `count` inputs take if they are packed and each has `elements` elements. `inputs`
  // is the table's list of row inputs or of token inputs.
  static std::size_t packed(const auto& inputs, std::size_t count, std::int64_t elements);
  std::size_t token_offset(std::size_t input, std::int64_t tokens) const;
  std::size_t row_offset(std::size_t input, std::int64_t rows) const;

  InputLimits limits_;
  StepBuffer* step_;
  InputTable table_;
  std::size_t rows_begin_ = 0;
  std::size_t boundary_ = 0;  // end of the row inputs and start of the token inputs
  std::unique_ptr<Allocation> last_ids_;
  std::vector<std::int32_t> adapter_slots_;  // one slot for each token of the last stage_tokens()
};

}  // namespace tessera
