// Both ends of a model: ids to hidden states, and hidden states to logits.
#pragma once

#include "tessera/model/config.h"
#include "tessera/model/layers/inputs.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// [T, hidden]: the embeddings of the tokens' ids, times the config's scale, or those that are given.
ir::ValueId embed(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs);

// The wanted rows' logits, f32[R, vocab], with the config's soft cap; or f32[R, labels] of a classifier.
ir::ValueId logits(LayerBuilder& b, const ModelConfig& config, const HeadInputs& inputs);

}  // namespace tessera
