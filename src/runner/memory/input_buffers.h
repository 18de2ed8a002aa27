// Static inputs of a model's graphs. What the host stages lies in the StepBuffer, packed for each bucket: the row
// inputs end, and the token inputs begin, at one fixed place, so that a forward of few tokens is one short copy. What
// the device makes (last_ids) has memory of its own.
//
//   rows of R=4, of R=2          boundary    tokens of T=2, of T=8
//   [wanted temperature … |wanted …]│[ids rows positions slots| … ]
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
  std::int64_t max_tokens = 0;    // of a forward, padding included
  std::int64_t max_requests = 0;  // length of last_ids
  std::int64_t max_rows = 0;      // wanted rows of one run of the head
  std::vector<std::string> cache_groups;
  bool rope_positions = false;  // the graphs rotate by positions in three dimensions
};

// Of a model's graphs.
InputLimits input_limits(const ModelGraphs& graphs, const RunnerOptions& options);

class InputBuffers {
 public:
  // Reserves its share of `step`, which outlives it and is allocated before anything is staged.
  static Result<InputBuffers> create(Device& device, InputLimits limits, StepBuffer& step);
  // What it takes of the device's memory, its share of the step buffer included.
  static std::int64_t bytes_needed(const InputLimits& limits);

  // Adds the address of every input, by the graph's names.
  void add_to(ExternalValues& externals) const;
  const InputLimits& limits() const { return limits_; }
  std::int64_t bytes() const { return bytes_needed(limits_); }

  // Token inputs of the batch in the first rows; rows up to padded_tokens get the padding id, position 0 and slot 0,
  // which no request owns. The step buffer's next upload carries them. kInternal where padded_tokens passes the limits.
  // Precondition: tokens.batch.num_tokens() <= padded_tokens.
  Status stage_tokens(const StagedTokens& tokens, std::int64_t padded_tokens);
  // Rows of the body's output for the head; padding takes row 0. `sampling` is of the first rows; others are greedy.
  // Carried by the step buffer's next upload.
  Status stage_rows(std::span<const std::int32_t> rows, std::span<const SampleRow> sampling, std::int64_t padded_rows);
  // Copies sampled ids out of the arena: row r of last_ids from `first` on. On the device.
  Status keep_sampled(DeviceAddress sampled_ids, std::int64_t first, std::int64_t count, Stream& stream);
  // The ids kept last, [count], once the stream has passed.
  Status download_sampled(std::span<TokenId> ids, Stream& stream) const;

 private:
  InputBuffers(InputLimits limits, StepBuffer& step);
  // Bytes of the first `count` inputs of a list when each has `elements`; all: the packed size.
  static std::size_t packed(const auto& inputs, std::size_t count, std::int64_t elements);
  std::size_t token_offset(std::size_t input, std::int64_t tokens) const;
  std::size_t row_offset(std::size_t input, std::int64_t rows) const;

  InputLimits limits_;
  StepBuffer* step_;
  InputTable table_;
  std::size_t rows_begin_ = 0;
  std::size_t boundary_ = 0;  // end of the rows, start of the tokens
  std::unique_ptr<Allocation> last_ids_;
};

}  // namespace tessera
