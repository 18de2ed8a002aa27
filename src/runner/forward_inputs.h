// Describes the inputs of one forward, and where its results are found.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/logit_edits.h"
#include "tessera/runner/memory/input_buffers.h"

namespace tessera {

// The spans of inputs must stay valid until the call that takes this object returns, and the spans of outputs until the
// forward is collected. An output whose span is empty is not computed.
struct ForwardInputs {
  const ForwardBatch& batch;
  // Positions for models with three-dimensional rotary positions; other models ignore them.
  const RopeAxes& rope_positions = kPlainRope;
  // The sampling parameters of the first wanted rows: one entry for each sampled row, at most max_requests. Wanted rows
  // after these yield logits and log-probabilities, but no token.
  std::span<const SampleRow> sampling = {};
  const LogitEdits* edits = nullptr;  // for the sampled rows; null or empty: no edits
  // [wanted rows]: for each row, the token whose log-probability is computed. The entries of sampled rows are ignored,
  // because a sampled row gets the log-probability of its sampled token.
  std::span<const TokenId> logprob_targets = {};
  int top_logprobs = 0;          // number of most probable tokens to report for each target; 0 … kMaxTopLogprobs
  std::span<float> logits = {};  // [wanted rows × vocab], output: the model's logits before edits
  std::span<float> hidden_states = {};  // [rows × hidden size], output: the body's results for hidden_rows
  // Ascending indices of the forward's tokens that get hidden states; empty: all tokens.
  std::span<const std::int32_t> hidden_rows = {};
  bool force_eager = false;
  // False: runs the size that dispatch chose operator by operator instead of replaying the size's graph.
  bool replay_graphs = true;

  StagedTokens tokens() const { return {.batch = batch, .rope_positions = rope_positions}; }
  bool has_edits() const { return edits != nullptr && !edits->empty(); }
  // Returns whether the forward needs edits or log-probabilities, which the head's own sampler does not provide.
  bool needs_choice() const { return has_edits() || !logprob_targets.empty(); }
};

// Results of a forward. Valid until RunnerOptions::max_in_flight more forwards were submitted.
struct StepOutputs {
  std::span<const TokenId> sampled;  // [sampled rows]
  // Log-probabilities are filled in if targets were given. They follow the model's own distribution, before edits and
  // temperature; see ops/sampling/top_logprobs.h.
  std::span<const float> logprobs;  // [wanted rows]
  // [wanted rows × top_logprobs]: the most probable token first, equally probable tokens by id; -1 past the last token.
  std::span<const TokenId> top_ids;
  std::span<const float> top_logprobs;  // [wanted rows × top_logprobs]
};

struct ForwardLimits {
  std::int64_t max_tokens = 0;
  std::int64_t max_requests = 0;
  std::size_t cache_groups = 0;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t embedding_rows = 0;        // rows with committed memory
  std::int64_t embedding_row_values = 0;  // values of each row
  std::int64_t adapter_slots = 0;         // 0: no adapters are served
};

// Checks that the inputs are consistent with one another and with the limits. An error means a fault of the engine,
// unless the batch has too many tokens. Ids of edits are not checked, because the kernel skips ids outside the
// vocabulary.
Status check(const ForwardInputs& inputs, const ForwardLimits& limits);

}  // namespace tessera
