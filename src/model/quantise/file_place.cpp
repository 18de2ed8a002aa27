#include "tessera/model/quantise/file_place.h"

#include <fmt/format.h>

#include "tessera/model/quantise/own_name.h"

namespace tessera {

std::optional<FilePlace> find_file_place(std::string_view tensor, const ModelConfig& config,
                                         const GgufArchitecture& architecture) {
  std::string name(tensor.substr(0, tensor.rfind('.')));
  name += ".weight";
  if (name.starts_with(config.tensor_prefix)) name = "model." + name.substr(config.tensor_prefix.size());
  const OwnName own = parse_own_name(name);
  const TensorNameRule* rule = find_rule_of_own(own.rest, own.layer.has_value(), architecture.names);
  if (rule == nullptr) return std::nullopt;
  return FilePlace{.name = own.layer ? fmt::format("blk.{}.{}", *own.layer, rule->gguf) : std::string(rule->gguf),
                   .layer = own.layer,
                   .matrix = own.expert.value_or(0),
                   .form = rule->form};
}

StoredOrder value_head_order(const DeltaNetConfig& net) {
  return {.first = 0, .a = net.value_heads / net.key_heads, .b = net.key_heads, .unit = net.value_head_dim};
}

}  // namespace tessera
