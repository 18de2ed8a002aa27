// Chooses the entries of an importance matrix that are used when the linears of a model folder are quantised.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/model/gguf/importance_matrix.h"
#include "tessera/model/quantise/folder_types.h"
#include "tessera/model/quantise/tensor_importance.h"

namespace tessera {

struct FolderImportance {
  std::map<std::string, TensorImportance> entries;  // contain the numbers of `linears`; keys are names in GGUF files
  // The importances of each linear's columns, all positive. Empty for a linear that is rounded without importances.
  std::vector<std::span<const float>> linears;
  std::vector<std::string> notes;
};

// Chooses the importances for `linears`. `tensors` are the names of the checkpoint's tensors. `model` is the
// checkpoint's path, for messages. Returns unimplemented for a family that GGUF files do not support, because
// importance matrices use GGUF's names. Returns invalid_argument in three cases: the checkpoint does not have an
// entry's tensor, the tensor has another size than the entry, or a linear of a layer has no entry. The message names
// the entry or the linear. The notes are those of ImportanceUse.
Result<FolderImportance> choose_folder_importance(const ModelConfig& config, const std::string& model,
                                                  std::span<const std::string_view> tensors, const FolderType& type,
                                                  std::span<const QuantisedLinear> linears,
                                                  const ImportanceMatrix& matrix);

}  // namespace tessera
