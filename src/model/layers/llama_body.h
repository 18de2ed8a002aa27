// Builds the layers of Llama, which many families share. The families differ in how q, k and v are stored, and in
// whether layers have an MLP or experts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/layer_builder.h"
#include "tessera/model/layers/norm.h"

namespace tessera {

// The function that returns the blocks of q, k and v: qkv_blocks() or fused_qkv_blocks() (attention.h).
using QkvBlocks = std::vector<LinearBlock> (*)(const ModelConfig& config, const std::string& prefix);

// The inputs of a layer's MLP or experts.
struct FeedForwardInput {
  ir::ValueId x;      // [T, hidden]
  ir::ValueId slots;  // i32[T]: 0 means padding
  std::int64_t layer = 0;
  std::string prefix;  // prefix of the layer's tensors
};
// The function that builds the MLP or the experts. It returns [T, hidden].
using FeedForward = std::function<ir::ValueId(const FeedForwardInput& in)>;

// Adds a layer:
//   h += o(attention(rope(qkv(norm(h)))));  h += feed_forward(norm(h))
//   and, in rows of images, h += the layer's deepstack vectors.
void add_llama_layer(LayerBuilder& b, const AttentionInputs& shared, std::int64_t layer, ResidualStream& h,
                     const std::string& prefix, QkvBlocks qkv, const FeedForward& feed_forward);

// Builds the body. The graph's inputs are input_ids, positions and so on. Returns norm(h) [T, hidden] after the last
// layer.
ir::ValueId build_llama_body(LayerBuilder& b, const ModelConfig& config, QkvBlocks qkv,
                             const FeedForward& feed_forward);

}  // namespace tessera
