// One forward, once it is decided which runner takes it: plans and inputs are staged; the prefill graphs are replayed
// piece by piece, or its operators run, and the head runs on the wanted rows; or the decode graph, which holds body,
// head and sampler, is replayed. Where logits are edited or log-probabilities wanted, the chooser goes on from the
// logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/dispatch/chooser.h"
#include "tessera/runner/dispatch/dispatch.h"
#include "tessera/runner/forward_inputs.h"
#include "tessera/runner/runner_parts.h"
#include "tessera/runner/step_results.h"

namespace tessera {

class ForwardStep {
 public:
  // `parts` outlive this.
  explicit ForwardStep(RunnerParts& parts);

  // Enqueues the forward, and the downloads of what it comes to. Precondition: check() accepted the inputs, and the
  // decision's size is captured or eager. Allocates nothing once the sizes in use have been seen.
  Status run(const ForwardInputs& inputs, const Decision& decision, StepResults::Slot& results);
  // Enqueues the body for other ranks' tokens, beside padding alone (ModelRunner::accompany).
  Status accompany(const Decision& decision);
  // After an error of run(): it was the launch of a graph, and nothing was kept of the forward.
  bool replay_failed() const { return replay_failed_; }
  void forget_failure() { replay_failed_ = false; }

  // Stages the inputs of a decode graph of `size` requests, rows in order. `sampling` as InputBuffers::stage_rows.
  Status stage_decode(const StagedTokens& tokens, std::int64_t size, std::span<const SampleRow> sampling);

 private:
  Status run_decode(const ForwardInputs& inputs, std::int64_t size, StepResults::Slot& results);
  Status run_body(const ForwardInputs& inputs, const Decision& decision);
  Status stage_body(const ForwardInputs& inputs, std::int64_t size);
  Status stage_head(const ForwardInputs& inputs, std::size_t first);
  Status run_head(const ForwardInputs& inputs, StepResults::Slot& results);
  Status take_rows(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results);
  // Those that are wanted, which a head of PrefillGraphs computes.
  Status run_head_for_hidden(const ForwardInputs& inputs);
  // `rows` of an output as floats; none: its first ones, as many as `to` holds.
  Status read_hidden(const OutputView& hidden, std::span<const std::int32_t> rows, std::span<float> to);

  RunnerParts& parts_;
  Chooser chooser_;
  std::vector<std::int32_t> in_order_;     // 0, 1, 2, …: the wanted rows of decode graphs
  std::vector<std::int32_t> hidden_rows_;  // of one run of the head
  std::vector<std::byte> hidden_host_;     // of the forward that wanted most hidden states, in the device's type
  bool replay_failed_ = false;
};

}  // namespace tessera
