// Declares the static inputs of all graphs. The runner fills these inputs before each forward. In the types below, X is
// ModelOptions::dtype.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/ir/builder.h"
#include "tessera/model/config/config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// The inputs of a body.
struct TokenInputs {
  ir::ValueId ids;       // i32[T]
  ir::ValueId rows;      // i32[T]: row of last_ids whose id replaces the token's id, or -1
  ir::ValueId last_ids;  // i32[max_requests]: tokens that the last step sampled
  // The next two inputs are declared only if takes_embeddings().
  ir::ValueId embedding_rows;      // i32[T]: row of `embeddings` that replaces the id's embedding, or -1
  ir::ValueId embeddings;          // X[max_embeddings, ModelConfig::embedding_row_values()]
  ir::ValueId positions;           // i32[T]; i32[3, T] if the config's rotation has sections
  std::vector<ir::ValueId> slots;  // i32[T], one for each cache group
  // The slots of one cache group. Operators treat a token whose slot in this group is 0 as padding. The group is the
  // first one that is not a state group. In a state group all tokens of a dummy batch, which only serves to measure,
  // have slot 0. If the model has only state groups, the group is the first of them.
  ir::ValueId padding_slots;
};
// Returns whether prompts may give embeddings in place of ids. For a draft model they may not.
inline bool takes_embeddings(const ModelOptions& options) { return !options.guest || options.guest->takes_embeddings; }

// Declares a body's inputs and the model's cache groups. The cache groups are `groups`, or cache_groups(config) if this
// argument is missing.
TokenInputs declare_token_inputs(LayerBuilder& b, const ModelConfig& config);
TokenInputs declare_token_inputs(LayerBuilder& b, const ModelConfig& config, std::span<const ir::CacheGroup> groups);

// The inputs of a head.
struct HeadInputs {
  ir::ValueId hidden;       // X[T, hidden]
  ir::ValueId wanted_rows;  // i32[R]: indices of the rows of `hidden` whose logits are wanted
};
HeadInputs declare_head_inputs(LayerBuilder& b, std::int64_t hidden_size);

// Declares one input for each operand that the operator `sample` has after the logits. Returns the inputs in the order
// of the operands.
std::vector<ir::ValueId> declare_sampling_inputs(ir::GraphBuilder& b);
// Like declare_sampling_inputs(), for the operator `logit_edits`.
std::vector<ir::ValueId> declare_edit_inputs(ir::GraphBuilder& b, std::int64_t vocab_size);
// Declares the input i32[R] with the ids whose log-probabilities are requested.
ir::ValueId declare_logprob_targets(ir::GraphBuilder& b);

}  // namespace tessera
