// Writes a folder that contains quantised linears, in Hugging Face's layout.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/config/config.h"
#include "tessera/model/family.h"
#include "tessera/model/quantise/folder_types.h"
#include "tessera/model/quantise/quantised_output.h"

namespace tessera {

// Returns the plan of a folder with quantised linears. The quantised linears are those that an engine would quantise to
// this format at its start (docs/quantisation.md). Other files, such as the tokenizer's, are copied. Returns
// unimplemented for a checkpoint that is already quantised, for matrices of experts that are stacked in one tensor, and
// for weights that are stored transposed or strided. If `importance` is not null, it is used to search for the scales,
// and the errors include those of choose_folder_importance(). Precondition: `importance` is null or
// uses_importance(type).
Result<std::unique_ptr<QuantisedOutput>> make_folder_output(const std::string& model_path, const ModelConfig& config,
                                                            const FolderType& type, const ir::OpTable& ops,
                                                            const FamilyRegistry& families,
                                                            const ImportanceMatrix* importance = nullptr);

}  // namespace tessera
