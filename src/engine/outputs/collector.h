// Adds the outputs of a forward to the forward's sequences, and makes the events of these sequences.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/timeline.h"
#include "tessera/engine/request.h"
#include "tessera/engine/schedule/scheduled_batch.h"
#include "tessera/engine/start/loaded_model.h"
#include "tessera/runner/forward_inputs.h"
#include "tessera/runner/step_profiler.h"

namespace tessera {

class Collector {
 public:
  // `model` must outlive the collector.
  explicit Collector(const LoadedModel& model) : model_(model) {}

  // Returns the batch as a forward's inputs, with memory for the results that the batch wants. The inputs are valid
  // until the next call.
  ForwardInputs inputs_of(const ScheduledBatch& batch);

  // Adds the entry's outputs to its sequence. Returns the sequence's event, or nothing if there is no progress to
  // report. Allocates nothing in a steady decode without drafts. `profiler` may be null.
  std::optional<RequestEvent> collect(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry,
                                      const StepOutputs& outputs, StepProfiler* profiler);

  // Adds one more token of a sequence, sampled after a kept draft, and returns its event.
  RequestEvent collect_next(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry, const StepOutputs& outputs,
                            StepProfiler* profiler);

  std::int64_t output_tokens() const { return output_tokens_; }
  // Returns the time span that ends with the engine's first token. It begins with the arrival of the request that got
  // this token. The times are on the clock of LoadedModel::start. Returns nothing before the engine's first token.
  const std::optional<Timeline::Phase>& first_token() const { return first_token_; }

 private:
  void add_output(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry, const StepOutputs& outputs,
                  StepProfiler* profiler, RequestEvent& event);
  static void finish_text(Sequence& sequence, RequestEvent& event);

  const LoadedModel& model_;
  std::vector<float> logits_;         // logits of the current forward
  std::vector<float> hidden_states_;  // rows of the current forward's hidden_rows
  std::int64_t output_tokens_ = 0;
  std::optional<Timeline::Phase> first_token_;
};

}  // namespace tessera
