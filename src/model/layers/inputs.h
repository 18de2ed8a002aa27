// The static inputs of every graph, declared in one place. The runner stages their content before each forward.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/ir/builder.h"
#include "tessera/model/config/config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// Inputs of a body.
struct TokenInputs {
  ir::ValueId ids;                 // i32[T]
  ir::ValueId rows;                // i32[T]: row of last_ids, or -1
  ir::ValueId last_ids;            // i32[max_requests]: tokens that the last step sampled
  ir::ValueId embedding_rows;      // i32[T]: row of `embeddings` that replaces the id's, or -1
  ir::ValueId embeddings;          // X[max_embeddings, ModelConfig::embedding_row_values()]
  ir::ValueId positions;           // i32[T]; i32[3, T] if the config's rotation has sections
  std::vector<ir::ValueId> slots;  // i32[T], one for each cache group
  // One of `slots`, in which 0 means padding. The slots of a state group are used only if there is no other group,
  // because slot 0 of a state group also occurs in measurement batches.
  ir::ValueId padding_slots;
};
// Declares a body's inputs and the model's cache groups: those of its attention windows, or the given ones.
TokenInputs declare_token_inputs(LayerBuilder& b, const ModelConfig& config);
TokenInputs declare_token_inputs(LayerBuilder& b, const ModelConfig& config, std::span<const ir::CacheGroup> groups);

// Inputs of a head.
struct HeadInputs {
  ir::ValueId hidden;       // X[T, hidden]
  ir::ValueId wanted_rows;  // i32[R]
};
HeadInputs declare_head_inputs(LayerBuilder& b, std::int64_t hidden_size);

// Declares an input for each operand of `sample` after the logits, in order.
std::vector<ir::ValueId> declare_sampling_inputs(ir::GraphBuilder& b);
// Declares an input for each operand of `logit_edits` after the logits, in order.
std::vector<ir::ValueId> declare_edit_inputs(ir::GraphBuilder& b, std::int64_t vocab_size);
// Declares i32[R]: the tokens whose log-probabilities are requested.
ir::ValueId declare_logprob_targets(ir::GraphBuilder& b);

}  // namespace tessera
