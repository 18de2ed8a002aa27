// Per-layer embeddings (Gemma 4, E2B and E4B): each layer has a small embedding of its own of every token, which a gate
// of the hidden state lets in.
#pragma once

#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/layer_builder.h"
#include "tessera/model/layers/norm.h"

namespace tessera {

// For each layer X[T, per_layer_input_size]; none where the model has no such embeddings. They are
//   (table[ids] · √size + norm(projection(embedded) / √hidden)) / √2
// `ids` i32[T] (resolve_ids); `embedded` [T, hidden], what the first layer reads. A token whose embedding is given
// takes the rows of the id that it carries.
std::vector<ir::ValueId> layer_inputs(LayerBuilder& b, const ModelConfig& config, ir::ValueId ids,
                                      ir::ValueId embedded);

// norm(projection(act(gate(h)) · own)): what the layer adds to the stream, [T, hidden].
ir::ValueId layer_input_branch(LayerBuilder& b, const ModelConfig& config, ResidualStream& h, ir::ValueId own,
                               const std::string& prefix);

}  // namespace tessera
