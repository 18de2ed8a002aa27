#include "tessera/model/layers/mlp.h"

namespace tessera {

std::vector<LinearBlock> gate_up_blocks(const ModelConfig& config, const std::string& prefix) {
  return {{.tensor = prefix + "gate_proj", .rows = config.intermediate_size},
          {.tensor = prefix + "up_proj", .rows = config.intermediate_size}};
}

std::vector<LinearBlock> fused_gate_up_blocks(const ModelConfig& config, const std::string& prefix) {
  const std::int64_t rows = config.intermediate_size;
  return {{.tensor = prefix + "gate_up_proj", .rows = rows, .tensor_rows = 2 * rows},
          {.tensor = prefix + "gate_up_proj", .rows = rows, .first_row = rows, .tensor_rows = 2 * rows}};
}

ir::ValueId gated_mlp(LayerBuilder& b, const ModelConfig& config, ir::ValueId x,
                      const std::vector<LinearBlock>& gate_up, const std::string& prefix, Parallel down,
                      std::optional<ir::ValueId> residual) {
  const ir::ValueId both = b.linear(prefix + "gate_up_proj", x, gate_up, config.mlp_bias, Parallel::kColumn);
  const ir::ValueId activated =
      config.hidden_act == Activation::kSilu
          ? b.graph.op("silu_mul", {both})
          : b.graph.op("gelu_mul", {both}, {{"tanh", config.hidden_act == Activation::kGeluTanh}});
  return b.linear(prefix + "down_proj", activated, {{.tensor = prefix + "down_proj", .rows = config.hidden_size}},
                  config.mlp_bias, down, residual);
}

}  // namespace tessera
