// Per-layer embeddings (Gemma 4, E2B and E4B): each layer has its own small embedding of every token, which is gated by
// the hidden state.
#pragma once

#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/layer_builder.h"
#include "tessera/model/layers/norm.h"

namespace tessera {

// Returns for each layer X[T, per_layer_input_size], or nothing if the model has no such embeddings. They are
//   (table[ids] · √size + norm(projection(embedded) / √hidden)) / √2
//
// `ids` i32[T] is the result of resolve_ids; `embedded` [T, hidden] is the input of the first layer. A token whose
// embedding is given uses the rows of the id that it carries.
std::vector<ir::ValueId> layer_inputs(LayerBuilder& b, const ModelConfig& config, ir::ValueId ids,
                                      ir::ValueId embedded);

// Returns norm(projection(act(gate(h)) · own)), which the layer adds to the stream, [T, hidden].
ir::ValueId layer_input_branch(LayerBuilder& b, const ModelConfig& config, ResidualStream& h, ir::ValueId own,
                               const std::string& prefix);

}  // namespace tessera
