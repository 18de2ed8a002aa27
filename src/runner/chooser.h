// From logits to tokens where the head's own sampler is not enough: rows with edits, and log-probabilities.
//
// The decode graph and the head sample every batch as if there were neither; so they stay as they are, and plain
// batches pay nothing. Where there are, the rows of logits are copied to where the graphs choose and logprobs find
// them, some at a time, and what those say counts.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/runner/debug_mode.h"
#include "tessera/runner/edit_buffers.h"
#include "tessera/runner/executables.h"
#include "tessera/runner/forward_inputs.h"
#include "tessera/runner/graph_runner.h"
#include "tessera/runner/step_results.h"

namespace tessera {

// Some of a forward's wanted rows after the head, on the device.
struct HeadRows {
  std::int64_t first = 0;  // which of the wanted rows
  std::int64_t count = 0;
  OutputView logits;   // f32[count or more, vocab]
  OutputView sampled;  // i32[count or more], by the head's sampler

  // How many of them are sampled, when `total` of the wanted rows are.
  std::int64_t num_sampled(std::int64_t total) const;
  HeadRows part(std::int64_t from, std::int64_t rows) const;
};

class Chooser {
 public:
  // `choose` and `logprobs` of make_executables, whose inputs are `edits`, `inputs` and choice_logits, `logits_offset`
  // into the arena. All that is borrowed outlives the chooser.
  struct Parts {
    std::unique_ptr<Executable> choose;
    std::unique_ptr<Executable> logprobs;
    EditBuffers& edits;
    InputBuffers& inputs;
    Arena& arena;
    std::int64_t logits_offset;
    std::int64_t vocab_size;
    Stream& stream;
    DebugMode* debug = nullptr;  // null: off
  };
  explicit Chooser(Parts parts);

  // Keeps the sampled ids of the rows in last_ids, and enqueues the way of log-probabilities to `results`.
  Status take(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results);

 private:
  Status take_some(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results);
  Status run(GraphRunner& runner, std::int64_t size, std::int64_t real_rows);
  Status check_fresh(const OutputView& view) const;
  Result<OutputView> choose(const ForwardInputs& inputs, const HeadRows& rows, std::int64_t sampled);
  Status read_logprobs(const HeadRows& rows, StepResults::Slot& results);
  Status copy_logits(const HeadRows& rows, std::int64_t count);
  std::int64_t size_for(std::int64_t rows) const;

  EditBuffers& edits_;
  InputBuffers& inputs_;
  Arena& arena_;
  std::int64_t logits_offset_;
  std::int64_t vocab_size_;
  Stream& stream_;
  DebugMode* debug_;
  std::vector<std::int64_t> sizes_;
  GraphRunner choose_;
  GraphRunner logprobs_;
};

}  // namespace tessera
