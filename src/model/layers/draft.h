// Next-token layers, also called multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): one more layer
// behind a model's own, which drafts tokens.
//
//   row t:  hidden state of token t, id of token t + 1  →  hidden state, whose logits are those of token t + 2
//
// A further draft takes this hidden state and the drafted id in the next row. The layer's keys and values of row t lie
// at position t of the model's cache.
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

// Returns ok if a model with this config can have its checkpoint's next-token layer (ModelOptions::draft_layer), or why
// not. Precondition: the family is known.
Status check_draft_layer(const ModelConfig& config, const FamilyRegistry& families);

// Returns the config with one more layer, the next-token layer: full attention, and experts if the model has some.
// Precondition: config.draft_layers is 1.
ModelConfig with_draft_layer(const ModelConfig& config);

// Declares the inputs and returns [T, hidden]: for each token the row of draft_hidden that it continues.
ir::ValueId given_hidden(LayerBuilder& b, const ModelConfig& config);

// The tensors around a next-token layer.
struct DraftTensors {
  std::string embedding_norm;  // with ".weight", like the other norms
  std::string hidden_norm;
  std::string projection;  // [hidden, 2 · hidden], columns of the embedding first; without ".weight"
  std::string final_norm;
};

// Adds the layer of number `layer` to the stream. `prefix` is "model.layers.<layer>.", the prefix of its tensors unless
// the family has another.
using DraftLayer = std::function<void(ResidualStream& h, const AttentionInputs& shared, std::int64_t layer,
                                      const std::string& prefix)>;

// Returns final_norm(layer(projection(embedding_norm(embedding), hidden_norm(hidden)))): [T, hidden]. The cache groups
// are `groups`. `config` is with_draft_layer()'s.
ir::ValueId next_token_layer(LayerBuilder& b, const ModelConfig& config, std::span<const ir::CacheGroup> groups,
                             const DraftTensors& tensors, const DraftLayer& add_layer);

// Returns DeepSeek's names: "model.layers.<layer>.enorm.weight", "….eh_proj" …, where <layer> is the last of `config`.
DraftTensors nextn_tensors(const LayerBuilder& b, const ModelConfig& config);

}  // namespace tessera
