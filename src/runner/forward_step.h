// Runs one forward after dispatch has chosen its runner. Plans and inputs are staged first. A prefill replays its
// graphs piece by piece, or runs its operators one by one. Then it runs the head on the wanted rows. A decode replays
// the decode graph, which contains body, head and sampler. If logits must be edited or log-probabilities are wanted,
// the Chooser continues from the logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/dispatch/chooser.h"
#include "tessera/runner/dispatch/dispatch.h"
#include "tessera/runner/forward_inputs.h"
#include "tessera/runner/launcher.h"
#include "tessera/runner/runner_parts.h"
#include "tessera/runner/step_results.h"

namespace tessera {

class ForwardStep {
 public:
  // `parts` must outlive this object.
  explicit ForwardStep(RunnerParts& parts);

  // Enqueues the forward and the downloads of its results. Precondition: check() accepted the inputs, and the decision
  // is eager or its size is captured. Allocates nothing for sizes that were seen before.
  Status run(const ForwardInputs& inputs, const Decision& decision, StepResults::Slot& results);
  // Enqueues the body, or the decode graph, with padding rows only. The other ranks cannot compute their tokens without
  // this forward (ModelRunner::run_idle_forward).
  Status run_idle_forward(const Decision& decision);
  Launcher& launcher() { return launcher_; }
  // After an error of run(), returns whether a graph failed to launch. If so, no result of the forward was kept.
  bool replay_failed() const { return replay_failed_; }

  // Stages the inputs of a decode graph of `size` rows. The graph computes logits for every row, so wanted row i is row
  // i of the graph. `sampling` describes the first rows, and the other rows are greedy (InputBuffers::stage_rows).
  Status stage_decode(const StagedTokens& tokens, std::int64_t size, std::span<const SampleRow> sampling);
  // Stages the inputs of a prefill of `size` tokens, and of the head's first run.
  Status stage_prefill(const ForwardInputs& inputs, std::int64_t size);

 private:
  Status run_decode(const ForwardInputs& inputs, const Decision& decision, StepResults::Slot& results);
  Status run_body(const ForwardInputs& inputs, const Decision& decision);
  Status stage_body(const ForwardInputs& inputs, std::int64_t size);
  Status stage_head(const ForwardInputs& inputs, std::size_t first);
  // Copies the hidden states of the forward's tokens to draft_hidden, if the model has a next-token layer.
  Status keep_for_drafts(const ForwardInputs& inputs, const Executable& made, const ir::Bucket& bucket);
  Status run_head(const ForwardInputs& inputs, bool adapters, StepResults::Slot& results);
  Status take_rows(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results);
  // Computes the hidden states of inputs.hidden_rows, or of all tokens if that list is empty. Runs the head of
  // PrefillGraphs on these rows, because this head contains the rest of the last layer.
  Status run_head_for_hidden(const ForwardInputs& inputs, bool adapters);
  // Reads the given `rows` of an output as floats. If `rows` is empty, reads the first rows, as many as `to` holds.
  Status read_hidden(const OutputView& hidden, std::span<const std::int32_t> rows, std::span<float> to);

  RunnerParts& parts_;
  Launcher launcher_;
  Chooser chooser_;
  std::vector<std::int32_t> in_order_;     // 0, 1, 2, …: the indices of a decode graph's wanted rows
  std::vector<std::int32_t> hidden_rows_;  // the rows of one run of the head that get hidden states
  // The buffer to which hidden states are downloaded, in the device's data type. It is large enough for any forward.
  std::vector<std::byte> hidden_host_;
  bool replay_failed_ = false;
};

}  // namespace tessera
