// Both ends of a model: ids to hidden states, and hidden states to logits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/inputs.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// [T, hidden]: the embeddings of the tokens' ids, times the config's scale, or those that are given.
ir::ValueId embed(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs);
// The same in two steps, for models that look up the ids twice, or others in place of some: i32[T], those that the last
// step sampled among them. `attributes`: of the operator, ops/rows/embedding.h.
ir::ValueId resolve_ids(LayerBuilder& b, const TokenInputs& inputs, const ir::Attributes& attributes = {});
ir::ValueId embed(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, ir::ValueId ids);

// A table of the checkpoint with a row for each id. Where the rows divide among the ranks, each has a slice of them.
struct EmbeddingTable {
  std::string tensor;  // "model.embed_tokens.weight"
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};
// [T, cols]: its rows by number, the sum over the ranks included. `operands`: of the operator `embedding`, after ids
// and in their order but for the table; `attributes`: those that are not of the slice.
ir::ValueId look_up(LayerBuilder& b, const EmbeddingTable& table, ir::ValueId ids,
                    const std::vector<ir::ValueId>& operands, ir::Attributes attributes);

// Where the config has deepstack levels: a layer's branch [T, hidden], and for tokens of images what their rows carry
// for that layer; other layers' branches are as they are.
ir::ValueId with_deepstack(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, std::int64_t layer,
                           ir::ValueId branch);

// The wanted rows' logits, f32[R, vocab], with the config's soft cap; or f32[R, labels] of a classifier. A tied head is
// the embedding's own memory, whole or in slices.
ir::ValueId logits(LayerBuilder& b, const ModelConfig& config, const HeadInputs& inputs);

}  // namespace tessera
