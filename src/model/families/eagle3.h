// Implements EAGLE-3 (Li et al., arXiv 2503.01840), which is a draft layer for one target model. The layer is published
// in a folder of its own.
//
//   fused[t] = fc(inputs of three layers of the target, concatenated), computed in the target's forward
//   row t:   hidden, token t + 1  →  h = hidden + o(attention(qkv(norm(embedding), hidden_norm(hidden))))
//                                    h += mlp(norm(h));  logits of token t + 2 = lm_head(norm(h))
//
// `hidden` is fused[t] if the target's forward has already computed row t. In later draft steps the target has not
// computed row t yet, and `hidden` is the h of the previous row. The logits may cover only part of the vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/ir/graph.h"
#include "tessera/model/config/config.h"
#include "tessera/model/family.h"
#include "tessera/model/layers/layer_builder.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/weight_source.h"

namespace tessera {

// A draft layer, as read_eagle3() finds it in the draft's folder.
struct EagleDraft {
  ModelConfig config;                    // sizes of the draft layer, whose index is num_hidden_layers - 1
  std::int64_t vocab_size = 0;           // rows of the draft's head
  std::vector<std::int64_t> aux_layers;  // the target's layers whose inputs are concatenated, ascending
  bool own_embedding = false;            // if false, the draft uses the target's embedding
  std::string layer = "midlayer.";       // prefix of the layer's tensors
  // [vocab_size]: the target's id for each row of the head. Empty if row i stands for id i.
  std::vector<TokenId> target_ids = {};
  std::shared_ptr<const Checkpoint> checkpoint = nullptr;  // null if the weights are random
};

// Reads the folder's config.json and the ids of the draft's head. `target` is the config of the target model. If
// `reads_weights` is false, only config.json is read and the folder need not contain weights. Returns invalid_argument
// if sizes of the draft differ from the target's sizes, or if a tensor is missing or wrong. Returns unimplemented for
// drafts that are not EAGLE-3 or are quantised, and for targets with latent attention.
Result<EagleDraft> read_eagle3(const std::string& folder, const ModelConfig& target, const FamilyRegistry& families,
                               bool reads_weights);

// Returns `fused` (see the formula at the top of this file) for all tokens, [T, hidden]. Precondition: `b` has already
// built the target's layers.
Result<ir::ValueId> fuse_layer_inputs(LayerBuilder& b, const EagleDraft& draft);
// Builds the draft layer, which computes h [T, hidden] from the inputs draft_hidden, ids and so on. Precondition: the
// tensor prefix of `b` is kEaglePrefix if the draft has its own embedding, otherwise the target's prefix.
ir::ValueId build_eagle3_layer(LayerBuilder& b, const EagleDraft& draft, const ModelConfig& target);
// Builds the draft's head, which computes logits f32[R, vocab_size] from h and wanted_rows, where R is the number of
// wanted rows.
ir::ValueId build_eagle3_head(LayerBuilder& b, const EagleDraft& draft);

// The prefix that distinguishes the names of the draft's tensors from the model's names.
inline constexpr std::string_view kEaglePrefix = "draft.";
// Reads the draft's tensors from its folder, and all other tensors from `model`.
WeightSource with_eagle3(WeightSource model, const EagleDraft& draft);

}  // namespace tessera
