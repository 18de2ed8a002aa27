// What a forward is asked, and what it comes to.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/logit_edits.h"
#include "tessera/runner/memory/input_buffers.h"

namespace tessera {

// Spans are borrowed for the call; empty ones are not wanted.
struct ForwardInputs {
  const ForwardBatch& batch;
  // By which models with positions in three dimensions rotate; others do not look at it.
  const RopeAxes& rope_positions = kPlainRope;
  // Of the first so many wanted rows, at most max_requests; those after them are only for logits and logprobs.
  std::span<const SampleRow> sampling = {};
  const LogitEdits* edits = nullptr;  // of the rows that are sampled; null or empty: none
  // [wanted rows]: whose log-probability is wanted. Of a sampled row it is the sampled token's, and the entry is not
  // looked at.
  std::span<const TokenId> logprob_targets = {};
  int top_logprobs = 0;                 // with targets: of so many most probable tokens too; 0 … kMaxTopLogprobs
  std::span<float> logits = {};         // [wanted rows × vocab], filled: as the model made them, before edits
  std::span<float> hidden_states = {};  // [hidden_rows, or tokens × hidden size], filled: what the body came to
  // Of the forward's tokens, ascending: whose hidden states are filled in; empty: all.
  std::span<const std::int32_t> hidden_rows = {};
  bool force_eager = false;
  // False: the operators of the size that dispatch chose are enqueued one by one, instead of its graph's replay.
  bool replay_graphs = true;

  StagedTokens tokens() const { return {.batch = batch, .rope_positions = rope_positions}; }
  bool has_edits() const { return edits != nullptr && !edits->empty(); }
  // Whether the tokens are not all that the head's own sampler gives.
  bool needs_choice() const { return has_edits() || !logprob_targets.empty(); }
};

// What a forward came to. Valid until RunnerOptions::max_in_flight forwards were submitted after it.
struct StepOutputs {
  std::span<const TokenId> sampled;  // [sampled rows]
  // Where targets were given, of the model's own distribution: before edits and temperature;
  // ops/sampling/top_logprobs.h.
  std::span<const float> logprobs;      // [wanted rows]
  std::span<const TokenId> top_ids;     // [wanted rows × top_logprobs]: descending, equal ones by id; -1: no more
  std::span<const float> top_logprobs;  // [wanted rows × top_logprobs]
};

struct ForwardLimits {
  std::int64_t max_tokens = 0;
  std::int64_t max_requests = 0;
  std::size_t cache_groups = 0;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t embedding_rows = 0;        // that have memory
  std::int64_t embedding_row_values = 0;  // of each
};

// Everything agrees with everything. But for too many tokens, an error here is the engine's defect. Ids of edits are
// not looked at: the kernel leaves out those outside the vocabulary.
Status check(const ForwardInputs& inputs, const ForwardLimits& limits);

}  // namespace tessera
