#include "tessera/model/quantise/folder_importance.h"

#include <set>

#include "tessera/model/quantise/file_place.h"
#include "tessera/model/quantise/folder_sizes.h"
#include "tessera/model/quantise/importance_use.h"

namespace tessera {
namespace {

// An entry's sums are in the order of a GGUF file's columns. Returns the entry with the sums in the order of the
// folder's columns.
ImportanceEntry in_own_order(ImportanceEntry entry, const FilePlace& place, const ModelConfig& config) {
  if (place.form != TensorForm::kValueColumns) return entry;
  const StoredOrder order = value_head_order(*config.delta_net);
  const std::vector<float> stored = entry.sums;
  for (std::size_t i = 0; i < stored.size(); ++i)
    entry.sums[static_cast<std::size_t>(order.stored(static_cast<std::int64_t>(i)))] = stored[i];
  return entry;
}

}  // namespace

Result<FolderImportance> choose_folder_importance(const ModelConfig& config, const std::string& model,
                                                  std::span<const std::string_view> tensors, const FolderType& type,
                                                  std::span<const QuantisedLinear> linears,
                                                  const ImportanceMatrix& matrix) {
  const std::string_view name = TRY(architecture_of_folder(config, model));
  const GgufArchitecture& architecture = *find_gguf_architecture(name);
  ImportanceUse use(matrix, model);
  std::set<std::string, std::less<>> names;
  for (const std::string_view tensor : tensors)
    if (const auto place = find_file_place(tensor, config, architecture)) names.insert(place->name);
  TRY(use.check_names(names));

  FolderImportance chosen;
  for (const QuantisedLinear& linear : linears) {
    chosen.linears.emplace_back();
    const std::optional<FilePlace> place = find_file_place(linear.module + ".weight", config, architecture);
    const ImportanceEntry* const entry = place ? matrix.find(place->name) : nullptr;
    if (entry == nullptr) {
      if (!place || place->layer) return use.missing(linear.module, type.description);
      use.add_without(linear.module);
      continue;
    }
    if (!chosen.entries.contains(entry->name)) {
      const bool experts = place->form == TensorForm::kExperts;
      TRY(use.check_sizes(*entry, experts && config.moe ? config.moe->num_experts : 1, linear.cols));
      const auto added =
          chosen.entries.emplace(entry->name, TensorImportance(in_own_order(*entry, *place, config), 1, linear.cols));
      use.add_unseen(entry->name, added.first->second.num_unseen());
    }
    const float* numbers = chosen.entries.at(entry->name).of_row(place->matrix);
    if (numbers != nullptr) chosen.linears.back() = {numbers, static_cast<std::size_t>(linear.cols)};
  }
  for (const ImportanceEntry& entry : matrix.entries)
    if (!chosen.entries.contains(entry.name)) use.add_unused(entry.name);
  chosen.notes = use.notes();
  return chosen;
}

}  // namespace tessera
