// The names of operators at which a forward is cut.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// Names of the operators that are cut at unless the user names others, as operators declare it.
std::vector<std::string> default_split_ops(const ir::OpTable& ops);

// Operators' names for `names`, which may also be SGLang's spellings, such as sglang.unified_attention_with_output.
// kNotFound for a name that is neither, with the registered operators; kUnimplemented for a spelling of SGLang whose
// operator this engine lacks.
Result<std::vector<std::string>> resolve_split_ops(const ir::OpTable& ops, std::span<const std::string> names);

}  // namespace tessera
