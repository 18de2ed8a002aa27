#include "tessera/model/adapters/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/model/adapters/adapter_config.h"
#include "tessera/model/adapters/expert_stacks.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/model/weights/tensor_copy.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The LoRA matrices A and B of one module, as stored in the file.
struct Pair {
  const StoredTensor* a = nullptr;
  const StoredTensor* b = nullptr;
  bool embeds = false;  // the matrices change an embedding, not a linear
};
using Pairs = std::map<std::string, Pair>;  // the key is the module's name

// The role that a tensor of an adapter's file has. If the tensor is not supported, `refused` says what it is.
struct TensorRole {
  std::string module;
  bool is_a = false;
  bool embeds = false;
  bool is_base = false;  // true for PEFT's copy of the base model's own matrix
  std::string_view refused = {};
};

struct Ending {
  std::string_view text;
  bool is_a = false;
  bool embeds = false;
  bool is_base = false;
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
                               {.text = ".base_layer.weight", .is_base = true}};

TensorRole role_of(std::string_view name) {
  constexpr std::string_view kPrefix = "base_model.model.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  for (const Ending& ending : kEndings)
    if (name.ends_with(ending.text))
      return {.module = std::string(name.substr(0, name.size() - ending.text.size())),
              .is_a = ending.is_a,
              .embeds = ending.embeds,
              .is_base = ending.is_base};
  TensorRole role{.module = std::string(name)};
  if (name.find("lora_magnitude_vector") != std::string_view::npos)
    role.refused = "a part of DoRA";
  else if (name.ends_with(".bias"))
    role.refused = "a bias";
  else
    role.refused = "neither A nor B of a module";
  return role;
}

Result<Pairs> pairs_of(const SafetensorsFile& file) {
  Pairs pairs;
  std::vector<std::pair<std::string, std::string>> base;  // a module's name, and the name of PEFT's copy of its matrix
  for (const StoredTensor& tensor : file.tensors()) {
    const TensorRole role = role_of(tensor.name);
    if (!role.refused.empty())
      return unimplemented(
          fmt::format("{}: tensor \"{}\" is {}, which is not supported; accepted: lora_A.weight and "
                      "lora_B.weight of linears, lora_embedding_A and lora_embedding_B",
                      file.path(), tensor.name, role.refused));
    if (role.is_base) {
      base.emplace_back(role.module, tensor.name);
      continue;
    }
    Pair& pair = pairs[role.module];
    if (pair.a == nullptr && pair.b == nullptr) pair.embeds = role.embeds;
    const StoredTensor*& place = role.is_a ? pair.a : pair.b;
    if (place != nullptr || pair.embeds != role.embeds)
      return invalid_argument(
          fmt::format("{}: tensors \"{}\" and \"{}\" belong to the same module; accepted: one A and one B, "
                      "either of a linear or of an embedding",
                      file.path(),
                      (place != nullptr    ? place
                       : pair.a != nullptr ? pair.a
                                           : pair.b)
                          ->name,
                      tensor.name));
    if (!is_weight_dtype(tensor.dtype))
      return invalid_argument(fmt::format("{}: tensor \"{}\" is {}; accepted: F32, F16, BF16", file.path(), tensor.name,
                                          stored_dtype_name(tensor.dtype)));
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
  if (pairs.empty()) return invalid_argument(fmt::format("{}: the adapter has no tensor", file.path()));
  return pairs;
}

Status check_whole(const std::string& path, const std::string& module, const Pair& pair) {
  if (pair.a != nullptr && pair.b != nullptr) return ok_status();
  return invalid_argument(fmt::format("{}: \"{}\" has lora_{} and no lora_{}", path, module,
                                      pair.a == nullptr ? "B" : "A", pair.a == nullptr ? "A" : "B"));
}

// Checks the two matrices of a module, and returns their LoRA rank.
Result<std::int64_t> checked_rank(const std::string& path, const std::string& module, const Pair& pair,
                                  const AdaptableModule& of_model, const AdapterConfig& config,
                                  const AdapterLayout& layout) {
  const std::int64_t rank = pair.a->shape.empty() ? 0 : pair.a->shape[0];
  if (pair.a->shape != std::vector{rank, of_model.cols} || pair.b->shape != std::vector{of_model.rows, rank} ||
      rank < 1)
    return invalid_argument(
        fmt::format("{}: \"{}\" has lora_A {} and lora_B {}; the model's module takes [rank, {}] and [{}, rank]: the "
                    "adapter is for "
                    "another model",
                    path, module, shape_text(pair.a->shape), shape_text(pair.b->shape), of_model.cols, of_model.rows));
  if (rank > layout.limits().max_rank)
    return invalid_argument(fmt::format("{}: \"{}\" has rank {}; at most {} is accepted (max_lora_rank)", path, module,
                                        rank, layout.limits().max_rank));
  if (const std::int64_t said = TRY(config.rank_of(module)); said != rank)
    return invalid_argument(
        fmt::format("{}: \"{}\" has rank {}, but adapter_config.json says {}", path, module, rank, said));
  return rank;
}

// Returns a matrix as floats. Returns invalid_argument if a value is not finite.
Result<std::vector<float>> floats_of(const StoredTensor& tensor, const std::string& path) {
  std::vector<float> values(static_cast<std::size_t>(tensor.num_elements()));
  TRY(copy_tensor(tensor, StoredDtype::kF32, std::as_writable_bytes(std::span(values))));
  const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  if (bad != values.end())
    return invalid_argument(fmt::format("{}: value {} of tensor \"{}\" is {}; accepted are finite values", path,
                                        bad - values.begin(), tensor.name, *bad));
  return values;
}

Status check_files(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return not_found(fmt::format("{} is no folder", folder));
  const bool whole = fs::exists(fs::path(folder) / "adapter_model.safetensors", error);
  if (!whole && fs::exists(fs::path(folder) / "adapter_model.bin", error))
    return unimplemented(
        fmt::format("{} has adapter_model.bin, which is not read; accepted: adapter_model.safetensors, "
                    "as PEFT writes by default",
                    folder));
  return ok_status();
}

}  // namespace

Result<std::shared_ptr<const Adapter>> Adapter::load(const std::string& folder, const AdapterLayout& layout,
                                                     Device& device) {
  TRY(check_files(folder));
  const AdapterConfig config = TRY(AdapterConfig::read(folder));
  const SafetensorsFile file = TRY(SafetensorsFile::open((fs::path(folder) / "adapter_model.safetensors").string()));
  const std::string& path = file.path();
  std::map<AdapterLayout::Place, std::shared_ptr<const AdapterMatrices>> matrices;
  std::shared_ptr<Adapter> adapter(new Adapter);
  for (const auto& [module, pair] : TRY(pairs_of(file))) {
    TRY(check_whole(path, module, pair));
    if (is_expert_stack(module)) {
      const AdapterMatrix a{.values = TRY(floats_of(*pair.a, path)), .shape = pair.a->shape};
      const AdapterMatrix b{.values = TRY(floats_of(*pair.b, path)), .shape = pair.b->shape};
      for (const ExpertMatrices& expert : TRY(cut_expert_stack(path, module, a, b, config, layout))) {
        adapter->rank_ = std::max(adapter->rank_, expert.matrices->rank);
        if (!matrices.emplace(expert.place, expert.matrices).second)
          return invalid_argument(
              fmt::format("{}: two names mean the model's module \"{}\"; one of the names is \"{}\"", path,
                          layout.module_at(expert.place).name, module));
      }
      continue;
    }
    const std::vector<AdapterLayout::Place> places = layout.places_of(module);
    if (places.empty())
      return invalid_argument(fmt::format(
          "{}: adapters cannot change \"{}\" here; accepted are the model's modules {} (lora_target_modules)", path,
          module, layout.target_names()));
    const AdaptableModule& of_model = layout.module_at(places[0]);
    if (layout.linear_at(places[0]).embeds != pair.embeds)
      return invalid_argument(fmt::format("{}: \"{}\" has {}, but is {} of the model", path, module,
                                          pair.embeds ? "lora_embedding_A" : "lora_A and lora_B",
                                          pair.embeds ? "a linear" : "an embedding"));
    const auto made = std::make_shared<AdapterMatrices>();
    made->rank = TRY(checked_rank(path, module, pair, of_model, config, layout));
    made->scale = TRY(config.scale_of(module, made->rank));
    made->a = TRY(floats_of(*pair.a, path));
    made->b = TRY(floats_of(*pair.b, path));
    adapter->rank_ = std::max(adapter->rank_, made->rank);
    for (const AdapterLayout::Place& place : places)
      if (!matrices.emplace(place, made).second)
        return invalid_argument(fmt::format("{}: two names mean the model's module \"{}\"; one of the names is \"{}\"",
                                            path, of_model.name, module));
  }
  if (file.mapping() != nullptr) TRY(file.mapping()->check_whole());

  for (std::size_t rank = 0; rank < layout.num_ranks(); ++rank) {
    AdapterShare::OfModules modules;
    for (std::size_t i = 0; i < layout.linears_of(rank).size(); ++i) {
      auto& of_linear = modules.emplace_back();
      for (std::size_t m = 0; m < layout.linears_of(rank)[i].modules.size(); ++m) {
        const auto found = matrices.find({.rank = rank, .linear = i, .module = m});
        of_linear.push_back(found == matrices.end() ? nullptr : found->second.get());
      }
    }
    adapter->shares_.push_back(TRY(AdapterShare::cut(layout, rank, modules, device)));
  }
  adapter->path_ = folder;
  adapter->base_model_ = config.base_model();
  return std::shared_ptr<const Adapter>(std::move(adapter));
}

}  // namespace tessera
