#include "tessera/model/families/phi3.h"

#include "tessera/model/config/sliding_windows.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/llama_body.h"
#include "tessera/model/layers/mlp.h"

namespace tessera {
namespace {

// Builds the body (Abdin et al., arXiv 2404.14219): Llama's layers. The checkpoint has q, k and v in one tensor, and
// gate and up in another. Rotation uses LongRoPE and may leave part of each head unrotated.
ir::ValueId build_phi3_body(LayerBuilder& b, const ModelConfig& config) {
  return build_llama_body(b, config, fused_qkv_blocks, [&](const FeedForwardInput& in) {
    const std::string mlp = in.prefix + "mlp.";
    return gated_mlp(b, config, in.x, fused_gate_up_blocks(config, mlp), mlp);
  });
}

Status read_phi3_config(const Fields& fields, ModelConfig& config) {
  std::optional<std::int64_t> window = TRY(read_sliding_window(fields, std::nullopt));
  // A window as long as the context has no effect. It is removed, because attention is faster without a window: the
  // attention kernel can then split the keys of one tile of query rows into parts that run in parallel.
  if (window && *window >= config.max_position_embeddings) window.reset();
  return set_sliding_windows(fields, window, /*first=*/0, config);
}

}  // namespace

ModelFamily phi3_family() {
  return {.architecture = "Phi3ForCausalLM",
          .defaults = {.rms_norm_eps = 1e-5},
          .partial_rotary = true,
          .read_config = read_phi3_config,
          .build_body = build_phi3_body};
}

}  // namespace tessera
