// Builds the first and the last layer of a model. The first is the embedding, from ids to hidden states. The last is
// the head, from hidden states to logits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/inputs.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// Returns [T, hidden]. A token's row is the embedding of its id, multiplied by the config's scale. If the prompt gives
// a row in place of the embedding, the token's row is this given row.
ir::ValueId embed(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs);
// Does only the first step of embed(), for models that look up the ids twice or replace some of them. Returns the ids
// i32[T], including the ids that the last step sampled. ops/embedding/embedding.h describes `attributes`.
ir::ValueId resolve_ids(LayerBuilder& b, const TokenInputs& inputs, const ir::Attributes& attributes = {});
// Like embed() above, for `ids` that resolve_ids() returned.
ir::ValueId embed(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, ir::ValueId ids);

// A table of the checkpoint with a row for each id. If the ranks can share the rows equally, each rank holds a slice of
// the rows.
struct EmbeddingTable {
  std::string tensor;  // "model.embed_tokens.weight"
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};
// Returns the table's rows for `ids`, [T, cols], summed over the ranks. `operands` are all operands of the operator
// `embedding` except the ids and the table, in order. `attributes` are all attributes of the operator except those that
// describe the slice.
ir::ValueId look_up(LayerBuilder& b, const EmbeddingTable& table, ir::ValueId ids,
                    const std::vector<ir::ValueId>& operands, ir::Attributes attributes);

// Takes `branch` [T, hidden], the result that the layer adds to the residual stream. If the config has a deepstack
// level for the layer, returns `branch` plus the image rows' vectors for this layer. Otherwise returns `branch`.
ir::ValueId with_deepstack(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, std::int64_t layer,
                           ir::ValueId branch);

// Returns the logits of the wanted rows, f32[R, vocab], or f32[R, labels] for a classifier. Applies the config's soft
// cap. A tied head uses the memory of the embedding table, or of this rank's slice of the table. With `quantise` the
// head is quantised as the builder's formats say, and even a tied head has a separate matrix, "lm_head".
ir::ValueId logits(LayerBuilder& b, const ModelConfig& config, const HeadInputs& inputs, bool quantise);
// Like logits(), but with a separate matrix, "draft_head", which has the first `ids` rows of the model's head and is
// quantised as the builder's formats say.
ir::ValueId draft_logits(LayerBuilder& b, const ModelConfig& config, const HeadInputs& inputs, std::int64_t ids);
// Returns x multiplied by the head, f32[R, head.rows]. Every rank gets all columns. If `may_slice` is true and the
// ranks can share the head's rows equally, each rank computes the logits of its slice, and the slices are gathered. The
// head's weight has the name `name`.
ir::ValueId all_logits(LayerBuilder& b, const std::string& name, ir::ValueId x, const LinearBlock& head,
                       bool may_slice = true);

}  // namespace tessera
