// EAGLE-3 (Li et al., arXiv 2503.01840): a draft layer that is published in a folder of its own, for one target model.
//
//   fused[t] = fc(inputs of three layers of the target, joined)            with the target's forward
//   row t:   hidden, token t + 1  →  h = hidden + o(attention(qkv(norm(embedding), hidden_norm(hidden))))
//                                    h += mlp(norm(h));  logits of token t + 2 = lm_head(norm(h))
//
// `hidden` is fused[t], and behind a draft the last row's h. The logits may cover only a part of the vocabulary.
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

// The properties of a draft layer that are known before weights are read.
struct EagleDraft {
  ModelConfig config;                    // sizes of the layer, which is the last of num_hidden_layers
  std::int64_t vocab_size = 0;           // rows of its head
  std::vector<std::int64_t> aux_layers;  // ascending: the target's layers whose inputs are joined
  bool own_embedding = false;            // false: the target's is used
  std::string layer = "midlayer.";       // prefix of the layer's tensors
  // [vocab_size]: the target's id of each row of the head; empty: the ids are the same.
  std::vector<TokenId> target_ids = {};
  std::shared_ptr<const Checkpoint> checkpoint = nullptr;  // null: random weights
};

// Reads the folder's config.json and the ids of its head. `target` is the config of the model that it drafts for.
// Without `reads_weights` the folder needs no weights, and all else is as config.json says. invalid_argument if its
// sizes are not the target's, or if a tensor is missing or wrong; unimplemented for other kinds of drafts.
Result<EagleDraft> read_eagle3(const std::string& folder, const ModelConfig& target, const FamilyRegistry& families,
                               bool reads_weights);

// Returns fused [T, hidden]. `b` has built the target's layers.
Result<ir::ValueId> fuse_layer_inputs(LayerBuilder& b, const EagleDraft& draft);
// Builds the layer: draft_hidden, ids … → h [T, hidden]. The tensors of `b` begin with kEaglePrefix if the draft has
// its own embedding, else with the target's prefix.
ir::ValueId build_eagle3_layer(LayerBuilder& b, const EagleDraft& draft, const ModelConfig& target);
// Builds the head: h, wanted_rows → logits f32[R, vocab_size].
ir::ValueId build_eagle3_head(LayerBuilder& b, const EagleDraft& draft);

// The prefix that the names of its tensors get among the model's.
inline constexpr std::string_view kEaglePrefix = "draft.";
// Reads the draft's tensors from its folder, and all others from `model`.
WeightSource with_eagle3(WeightSource model, const EagleDraft& draft);

}  // namespace tessera
