// The Llama family as graphs: Llama 2 and 3, Mistral, Qwen 2 and 2.5, Qwen 3 (dense).
#pragma once

#include "tessera/model/model.h"

namespace tessera {

// h = embed(ids), or given embeddings; per layer: h += o(attention(rope(qkv(norm(h))))), h +=
// down(act(gate_up(norm(h)))); norm(h).
Result<ModelGraphs> build_llama(const ModelConfig& config, const ModelOptions& options, const ir::OpTable& ops);

}  // namespace tessera
