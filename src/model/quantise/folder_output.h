// A folder in Hugging Face's layout whose linears are quantised.
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

// Chooses the linears that a start with this format would quantise (docs/quantisation.md). Files beside the weights,
// such as the tokenizer's, are copied. unimplemented for a checkpoint that is quantised already, for experts in one
// stack, and for weights that are stored in another order.
Result<std::unique_ptr<QuantisedOutput>> make_folder_output(const std::string& model_path, const ModelConfig& config,
                                                            const FolderType& type, const ir::OpTable& ops,
                                                            const FamilyRegistry& families);

}  // namespace tessera
