// Describes the inputs of one forward and the places of its results.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/logit_edits.h"
#include "tessera/runner/memory/input_buffers.h"

namespace tessera {

// The spans of inputs must stay valid until the call that takes this object returns. The spans of outputs must stay
// valid until the forward is collected. If the span of an output is empty, the output is not computed.
struct ForwardInputs {
  const ForwardBatch& batch;
  // Positions for models with three-dimensional rotary positions. Other models ignore them.
  const RopeAxes& rope_positions = kPlainRope;
  // The sampling parameters of the first wanted rows: one entry for each sampled row, at most max_requests. Wanted rows
  // after these yield logits and log-probabilities, but no token.
  std::span<const SampleRow> sampling = {};
  const LogitEdits* edits = nullptr;  // edits for the sampled rows; if null or empty, there are none
  // For each wanted row, the token whose log-probability is computed. The entries of sampled rows are ignored, because
  // a sampled row gets the log-probability of its sampled token.
  std::span<const TokenId> logprob_targets = {};
  int top_logprobs = 0;          // number of most probable tokens to report for each target; 0 … kMaxTopLogprobs
  std::span<float> logits = {};  // [wanted rows × vocab], output: the model's logits before edits
  std::span<float> hidden_states = {};  // [rows × hidden size], output: the body's results for hidden_rows
  // Ascending indices of the tokens whose hidden states are written. If the list is empty, the hidden states of all
  // tokens are written.
  std::span<const std::int32_t> hidden_rows = {};
  bool force_eager = false;
  // If false, the forward runs operator by operator at the size that dispatch chose, instead of replaying the size's
  // graph.
  bool replay_graphs = true;

  StagedTokens tokens() const { return {.batch = batch, .rope_positions = rope_positions}; }
  bool has_edits() const { return edits != nullptr && !edits->empty(); }
  // Returns whether the forward needs edits or log-probabilities, which the head's own sampler does not provide.
  bool needs_choice() const { return has_edits() || !logprob_targets.empty(); }
};

// The results of a forward. They stay valid until RunnerOptions::max_in_flight more forwards were submitted.
struct StepOutputs {
  std::span<const TokenId> sampled;  // [sampled rows]
  // The log-probability of each wanted row's target (ForwardInputs::logprob_targets). The list is empty if there are no
  // targets. Log-probabilities come from the model's own distribution, before penalties, biases and temperature
  // (ops/sampling/top_logprobs.h).
  std::span<const float> logprobs;  // [wanted rows]
  // The most probable tokens of each row, [wanted rows × top_logprobs]. The most probable token comes first, and
  // equally probable tokens are sorted by id. If the vocabulary has fewer tokens than top_logprobs, the remaining
  // entries are -1.
  std::span<const TokenId> top_ids;
  std::span<const float> top_logprobs;  // [wanted rows × top_logprobs]
};

struct ForwardLimits {
  std::int64_t max_tokens = 0;
  std::int64_t max_requests = 0;
  std::size_t cache_groups = 0;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t embedding_rows = 0;        // number of rows with committed memory
  std::int64_t embedding_row_values = 0;  // number of values in each row
  std::int64_t adapter_slots = 0;         // if 0, no adapters are served
};

// Checks that the inputs are consistent with one another and with the limits. If the batch has too many tokens, the
// error says so. Every other error means that the engine has a fault. Ids of edits are not checked, because the kernel
// skips ids outside the vocabulary.
Status check(const ForwardInputs& inputs, const ForwardLimits& limits);

}  // namespace tessera
