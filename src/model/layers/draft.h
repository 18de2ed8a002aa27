// Builds next-token layers, also called multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2). A
// next-token layer follows the model's own layers and drafts tokens.
//
//   row t:  hidden state of token t, id of token t + 1  →  hidden state, from which the head drafts token t + 2
//
// To draft one more token, the layer runs again on the next row, with the hidden state that it returned and the id of
// the drafted token. The layer stores the keys and values of row t at position t of the model's cache.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/inputs.h"
#include "tessera/model/layers/layer_builder.h"
#include "tessera/model/layers/norm.h"

namespace tessera {

class FamilyRegistry;

// Returns ok if a model with this config can use the next-token layer of its checkpoint (ModelOptions::draft_layer).
// Otherwise returns an error with the reason. Precondition: the family is known.
Status check_draft_layer(const ModelConfig& config, const FamilyRegistry& families);

// Returns the config with one more layer, the next-token layer. This layer has full attention, and experts if the model
// has experts. Precondition: config.draft_layers is 1.
ModelConfig with_draft_layer(const ModelConfig& config);

// Declares the inputs draft_hidden and draft_rows. Returns [T, hidden]: for each token, the row of draft_hidden that
// draft_rows selects.
ir::ValueId given_hidden(LayerBuilder& b, const ModelConfig& config);

// The names of the tensors that a next-token layer has and an ordinary layer does not have.
struct DraftTensors {
  std::string embedding_norm;  // names of norms include ".weight"
  std::string hidden_norm;
  std::string projection;  // [hidden, 2 · hidden], the embedding's columns first; without ".weight"
  std::string final_norm;
};

// A function that builds layer number `layer` and adds the layer's outputs to the stream `h`. `prefix` is the prefix of
// the layer's tensors: "model.layers.<layer>." in most families.
using DraftLayer = std::function<void(ResidualStream& h, const AttentionInputs& shared, std::int64_t layer,
                                      const std::string& prefix)>;

// Returns final_norm(layer(projection(embedding_norm(embedding), hidden_norm(hidden)))): [T, hidden]. Declares the
// cache groups `groups`. `config` is the result of with_draft_layer().
ir::ValueId next_token_layer(LayerBuilder& b, const ModelConfig& config, std::span<const ir::CacheGroup> groups,
                             const DraftTensors& tensors, const DraftLayer& add_layer);

// Returns DeepSeek's names: "model.layers.<layer>.enorm.weight", "….eh_proj" …, where <layer> is the number of the last
// layer of `config`.
DraftTensors nextn_tensors(const LayerBuilder& b, const ModelConfig& config);

}  // namespace tessera
