// The names of operators at which a forward is cut.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// Returns the operators whose declarations say that forwards are cut at them. The user may name other operators
// instead.
std::vector<std::string> default_split_ops(const ir::OpTable& ops);

// Returns the operators for `names`, which may also be SGLang's spellings, such as
// sglang.unified_attention_with_output. Returns kNotFound, which lists the registered operators, if a name is neither
// an operator nor such a spelling. Returns kUnimplemented for SGLang's spelling of an operator that this engine lacks.
Result<std::vector<std::string>> resolve_split_ops(const ir::OpTable& ops, std::span<const std::string> names);

}  // namespace tessera
