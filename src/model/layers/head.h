// Both ends of a model: from ids to hidden states, and from hidden states to logits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/inputs.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// Returns [T, hidden]: the embeddings of the tokens' ids times the config's scale, or the given rows.
ir::ValueId embed(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs);
// Does the first of embed()'s two steps, for models that look up the ids twice or replace some of them. Returns i32[T]:
// the ids, including those that the last step sampled. ops/embedding/embedding.h describes the operator's `attributes`.
ir::ValueId resolve_ids(LayerBuilder& b, const TokenInputs& inputs, const ir::Attributes& attributes = {});
ir::ValueId embed(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, ir::ValueId ids);

// A table of the checkpoint with a row for each id. If the rows divide among the ranks, each rank has a slice of them.
struct EmbeddingTable {
  std::string tensor;  // "model.embed_tokens.weight"
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};
// Returns [T, cols]: the rows of the table that `ids` name, summed over the ranks. `operands` are those of the operator
// `embedding` after ids, in order and without the table; `attributes` are all but those of the slice.
ir::ValueId look_up(LayerBuilder& b, const EmbeddingTable& table, ir::ValueId ids,
                    const std::vector<ir::ValueId>& operands, ir::Attributes attributes);

// Adds to a layer's branch [T, hidden] the part of image rows that is for that layer, if the config has deepstack
// levels. Other layers' branches stay as they are.
ir::ValueId with_deepstack(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, std::int64_t layer,
                           ir::ValueId branch);

// Returns the wanted rows' logits, f32[R, vocab], with the config's soft cap; or f32[R, labels] for a classifier. A
// tied head uses the embedding's own memory, whole or in slices.
ir::ValueId logits(LayerBuilder& b, const ModelConfig& config, const HeadInputs& inputs);
// Returns f32[R, head.rows], the head's product with x, on every rank. If `may_slice` and the rows divide among the
// ranks, each rank computes a slice of them.
ir::ValueId all_logits(LayerBuilder& b, ir::ValueId x, const LinearBlock& head, bool may_slice = true);

}  // namespace tessera
