// Builds per-layer embeddings (Gemma 4, E2B and E4B). Each layer has its own small embedding of every token. This
// embedding is multiplied by a gate that is computed from the hidden state.
#pragma once

#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/layer_builder.h"
#include "tessera/model/layers/norm.h"

namespace tessera {

// Returns [T, per_layer_input_size] for each layer, or nothing if the model has no per-layer embeddings. With size =
// per_layer_input_size and hidden = hidden_size, the values are
//   (table[ids] · √size + norm(projection(embedded) / √hidden)) / √2
//
// `ids` i32[T] is the result of resolve_ids(). `embedded` [T, hidden] is the input of the first layer. For a token
// whose embedding row the prompt gives, `embedded` has that row, but table[ids] still has the row of the token's id.
std::vector<ir::ValueId> layer_inputs(LayerBuilder& b, const ModelConfig& config, ir::ValueId ids,
                                      ir::ValueId embedded);

// Returns norm(projection(act(gate(h)) · own)), [T, hidden], which the layer adds to the residual stream. `own` is the
// layer's element of layer_inputs().
ir::ValueId layer_input_branch(LayerBuilder& b, const ModelConfig& config, ResidualStream& h, ir::ValueId own,
                               const std::string& prefix);

}  // namespace tessera
