// Resolves the names of the operators at which a forward is cut.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// Returns the operators at which forwards are cut by default, according to the operators' declarations. The user may
// choose other operators instead.
std::vector<std::string> default_split_ops(const ir::OpTable& ops);

// Returns the operators for `names`, which may also be SGLang's names, such as sglang.unified_attention_with_output.
// Returns kNotFound with a list of the registered operators if a name is neither an operator nor a name from SGLang.
// Returns kUnimplemented for SGLang's name of an operator that this engine does not have.
Result<std::vector<std::string>> resolve_split_ops(const ir::OpTable& ops, std::span<const std::string> names);

}  // namespace tessera
