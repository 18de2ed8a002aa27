#include "tessera/model/adapters/adapter_tensors.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/log.h"
#include "tessera/model/adapters/adapter_layout.h"

namespace tessera {
namespace {

// The end of a tensor's name, and the role that a tensor with this end has.
struct Ending {
  std::string_view text;
  bool is_a = false;
  bool embeds = false;
  bool is_base = false;   // whether the tensor is PEFT's copy of the base model's own matrix
  bool is_whole = false;  // whether the tensor is a matrix that replaces the base model's matrix
};
// The endings of tensor names. PEFT omits the adapter's name, "default", but other writers keep it.
constexpr Ending kEndings[] = {{.text = ".lora_A.weight", .is_a = true},
                               {.text = ".lora_A.default.weight", .is_a = true},
                               {.text = ".lora_B.weight"},
                               {.text = ".lora_B.default.weight"},
                               {.text = ".lora_embedding_A", .is_a = true, .embeds = true},
                               {.text = ".lora_embedding_A.default", .is_a = true, .embeds = true},
                               {.text = ".lora_embedding_B", .embeds = true},
                               {.text = ".lora_embedding_B.default", .embeds = true},
                               {.text = ".base_layer.weight", .is_base = true},
                               {.text = ".modules_to_save.default.weight", .is_whole = true},
                               {.text = ".modules_to_save.weight", .is_whole = true},
                               {.text = ".weight", .is_whole = true}};

// What one tensor of the file is. `refused` describes a tensor that is not supported. It is empty if the tensor is
// supported.
struct TensorRole {
  std::string module;
  Ending ending = {};
  std::string_view refused = {};
};

TensorRole role_of(std::string_view name) {
  constexpr std::string_view kPrefix = "base_model.model.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  for (const Ending& ending : kEndings) {
    if (!name.ends_with(ending.text)) continue;
    const std::string_view module = name.substr(0, name.size() - ending.text.size());
    if (!ending.is_whole || can_be_saved(last_word(module))) return {.module = std::string(module), .ending = ending};
  }
  TensorRole role{.module = std::string(name)};
  if (name.find("lora_magnitude_vector") != std::string_view::npos)
    role.refused = "a part of DoRA";
  else if (name.ends_with(".bias"))
    role.refused = "a bias";
  else
    role.refused = "neither A nor B of a module";
  return role;
}

}  // namespace

Result<AdapterTensors> AdapterTensors::of(const SafetensorsFile& file) {
  AdapterTensors found;
  std::map<std::string, AdapterPair>& pairs = found.pairs;
  std::vector<std::pair<std::string, std::string>> base;  // a module's name, and the name of PEFT's copy of its matrix
  for (const StoredTensor& tensor : file.tensors()) {
    const TensorRole role = role_of(tensor.name);
    if (!role.refused.empty())
      return unimplemented(
          fmt::format("{}: tensor \"{}\" is {}, which is not supported; accepted: lora_A.weight and "
                      "lora_B.weight of linears, lora_embedding_A and lora_embedding_B, weight of lm_head and "
                      "embed_tokens",
                      file.path(), tensor.name, role.refused));
    if (role.ending.is_base) {
      base.emplace_back(role.module, tensor.name);
      continue;
    }
    if (!is_weight_dtype(tensor.dtype))
      return invalid_argument(fmt::format("{}: tensor \"{}\" is {}; accepted: F32, F16, BF16", file.path(), tensor.name,
                                          stored_dtype_name(tensor.dtype)));
    if (role.ending.is_whole) {
      if (!found.whole.emplace(role.module, &tensor).second)
        return invalid_argument(fmt::format("{}: two tensors are the whole matrix of \"{}\"; one of them is \"{}\"",
                                            file.path(), role.module, tensor.name));
      continue;
    }
    AdapterPair& pair = pairs[role.module];
    if (pair.a == nullptr && pair.b == nullptr) pair.embeds = role.ending.embeds;
    const StoredTensor*& place = role.ending.is_a ? pair.a : pair.b;
    if (place != nullptr || pair.embeds != role.ending.embeds)
      return invalid_argument(
          fmt::format("{}: tensors \"{}\" and \"{}\" belong to the same module; accepted: one A and one B, "
                      "either of a linear or of an embedding",
                      file.path(),
                      (place != nullptr    ? place
                       : pair.a != nullptr ? pair.a
                                           : pair.b)
                          ->name,
                      tensor.name));
    place = &tensor;
  }
  for (const auto& [module, tensor] : base) {
    if (!pairs.contains(module))
      return unimplemented(fmt::format(
          "{}: \"{}\" is a whole matrix of a module that the adapter does not change, which is not supported",
          file.path(), tensor));
    log_info("engine", "{}: \"{}\" is a copy of the base model's matrix, which PEFT saved too; it is not read",
             file.path(), tensor);
  }
  for (const auto& [module, tensor] : found.whole)
    if (pairs.contains(module))
      return invalid_argument(
          fmt::format("{}: \"{}\" has both A or B and a whole matrix, \"{}\"; accepted is one of them", file.path(),
                      module, tensor->name));
  if (pairs.empty() && found.whole.empty())
    return invalid_argument(fmt::format("{}: the adapter has no tensor", file.path()));
  return found;
}

}  // namespace tessera
