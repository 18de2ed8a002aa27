#include "tessera/model/adapters/adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "tessera/model/adapters/adapter_config.h"
#include "tessera/model/adapters/adapter_tensors.h"
#include "tessera/model/adapters/expert_stacks.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/model/weights/tensor_copy.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

Status check_whole(const std::string& path, const std::string& module, const AdapterPair& pair) {
  if (pair.a != nullptr && pair.b != nullptr) return ok_status();
  return invalid_argument(fmt::format("{}: \"{}\" has lora_{} and no lora_{}", path, module,
                                      pair.a == nullptr ? "B" : "A", pair.a == nullptr ? "A" : "B"));
}

// Checks the two matrices of a module, and returns their LoRA rank.
Result<std::int64_t> checked_rank(const std::string& path, const std::string& module, const AdapterPair& pair,
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

// Returns a matrix as floats.
Result<std::vector<float>> floats_of(const StoredTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.num_elements()));
  TRY(copy_tensor(tensor, StoredDtype::kF32, std::as_writable_bytes(std::span(values))));
  return values;
}

// Returns where the layout places a whole matrix that an adapter has for a module. Returns an error if the layout has
// no place for the matrix, or if the layout has another shape for it.
Result<std::vector<AdapterLayout::Place>> places_of_whole(const std::string& path, const std::string& module,
                                                          const StoredTensor& tensor, const AdapterLayout& layout) {
  std::vector<AdapterLayout::Place> places = layout.places_of(module, /*whole=*/true);
  if (places.empty())
    return invalid_argument(fmt::format(
        "{}: the adapter replaces the whole matrix of \"{}\"; accepted are those modules that "
        "lora_modules_to_save names, as each of their matrices takes memory on the device: {}",
        path, module,
        layout.limits().saved.empty() ? "none" : fmt::format("{}", fmt::join(layout.limits().saved, ", "))));
  const AdaptableModule& of_model = layout.module_at(places[0]);
  const bool embeds = layout.linear_at(places[0]).embeds;
  const std::vector shape =
      embeds ? std::vector{of_model.cols, of_model.rows} : std::vector{of_model.rows, of_model.cols};
  if (tensor.shape != shape)
    return invalid_argument(
        fmt::format("{}: \"{}\" has a matrix {}; the model's is {}: the adapter is for another model, "
                    "or for one with added tokens",
                    path, module, shape_text(tensor.shape), shape_text(shape)));
  return places;
}

// If the settings tie the embedding to the head (ensure_weight_tying), refuses an adapter that changes either of them.
Status check_tying(const std::string& path, const AdapterConfig& config, const AdapterTensors& tensors) {
  if (!config.ties_weights()) return ok_status();
  const auto check = [&](const auto& modules) -> Status {
    for (const auto& [module, tensor] : modules)
      if (can_be_saved(from_layer(module)))
        return unimplemented(
            fmt::format("{}: adapter_config.json: \"ensure_weight_tying\" is true; accepted in an adapter that changes "
                        "\"{}\": false",
                        path, module));
    return ok_status();
  };
  TRY(check(tensors.pairs));
  return check(tensors.whole);
}

// Checks that the file has the whole matrix of every module that the settings list in modules_to_save.
Status check_saved(const std::string& path, const AdapterConfig& config, const AdapterTensors& tensors) {
  for (const std::string& word : config.saved())
    if (std::ranges::none_of(tensors.whole, [&](const auto& entry) { return from_layer(entry.first) == word; }))
      return invalid_argument(fmt::format(
          "{}: modules_to_save of adapter_config.json names \"{}\", but the file has no such matrix", path, word));
  return ok_status();
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
  const AdapterTensors tensors = TRY(AdapterTensors::of(file));
  TRY(check_tying(path, config, tensors));
  std::map<AdapterLayout::Place, std::shared_ptr<const AdapterMatrices>> matrices;
  const auto add = [&](const AdapterLayout::Place& place, std::shared_ptr<const AdapterMatrices> made,
                       const std::string& module) -> Status {
    if (matrices.emplace(place, std::move(made)).second) return ok_status();
    return invalid_argument(fmt::format("{}: two names mean the model's module \"{}\"; one of the names is \"{}\"",
                                        path, layout.module_at(place).name, module));
  };
  std::shared_ptr<Adapter> adapter(new Adapter);
  for (const auto& [module, pair] : tensors.pairs) {
    TRY(check_whole(path, module, pair));
    if (is_expert_stack(module)) {
      const AdapterMatrix a{.values = TRY(floats_of(*pair.a)), .shape = pair.a->shape};
      const AdapterMatrix b{.values = TRY(floats_of(*pair.b)), .shape = pair.b->shape};
      for (const ExpertMatrices& expert : TRY(cut_expert_stack(path, module, a, b, config, layout))) {
        adapter->rank_ = std::max(adapter->rank_, expert.matrices->rank);
        TRY(add(expert.place, expert.matrices, module));
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
    made->a = *pair.a;
    made->b = *pair.b;
    adapter->rank_ = std::max(adapter->rank_, made->rank);
    for (const AdapterLayout::Place& place : places) TRY(add(place, made, module));
  }
  for (const auto& [module, tensor] : tensors.whole) {
    const auto made = std::make_shared<AdapterMatrices>();
    made->whole = tensor;
    for (const AdapterLayout::Place& place : TRY(places_of_whole(path, module, *tensor, layout)))
      TRY(add(place, made, module));
  }
  TRY(check_saved(path, config, tensors));

  for (std::size_t rank = 0; rank < layout.num_ranks(); ++rank) {
    AdapterShare::OfModules modules;
    for (std::size_t i = 0; i < layout.linears_of(rank).size(); ++i) {
      auto& of_linear = modules.emplace_back();
      for (std::size_t m = 0; m < layout.linears_of(rank)[i].modules.size(); ++m) {
        const auto found = matrices.find({.rank = rank, .linear = i, .module = m});
        of_linear.push_back(found == matrices.end() ? nullptr : found->second.get());
      }
    }
    adapter->shares_.push_back(TRY(AdapterShare::cut(layout, rank, modules, device).with_context(path)));
  }
  if (file.mapping() != nullptr) TRY(file.mapping()->check_whole());  // whole matrices have now been read too
  adapter->path_ = folder;
  adapter->base_model_ = config.base_model();
  return std::shared_ptr<const Adapter>(std::move(adapter));
}

}  // namespace tessera
