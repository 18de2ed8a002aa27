// Both ends of a model: ids to hidden states, and hidden states to logits.
#pragma once

#include "tessera/model/config.h"
#include "tessera/model/layers/inputs.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// [T, hidden]: the embeddings of the tokens' ids, times the config's scale, or those that are given.
ir::ValueId embed(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs);
// The same in two steps, for models that look up the ids twice, or others in place of some: i32[T], those that the last
// step sampled among them. `attributes`: of the operator, ops/embedding.h.
ir::ValueId resolve_ids(LayerBuilder& b, const TokenInputs& inputs, const ir::Attributes& attributes = {});
ir::ValueId embed(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, ir::ValueId ids);

// Where the config has deepstack levels: a layer's branch [T, hidden], and for tokens of images what their rows carry
// for that layer; other layers' branches are as they are.
ir::ValueId with_deepstack(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, std::int64_t layer,
                           ir::ValueId branch);

// The wanted rows' logits, f32[R, vocab], with the config's soft cap; or f32[R, labels] of a classifier.
ir::ValueId logits(LayerBuilder& b, const ModelConfig& config, const HeadInputs& inputs);

}  // namespace tessera
