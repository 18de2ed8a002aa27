// Looks up embeddings in a table that is stored as GGUF blocks.
#pragma once

#include <cstddef>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// Returns whether the node's table is stored as GGUF blocks.
bool is_block_table(const ir::Node& node);

// Checks the table, which is operand `index`. Returns the type of its numbers, with the shape [rows of the table,
// columns]. For a table of GGUF blocks these are the numbers that the blocks encode. The shape rule of embedding calls
// this function.
Result<ir::Type> numbers_of_table(const ir::OpSignature& s, std::size_t index);

// Binds embedding with a table of blocks on the CPU. Precondition: the shape rule has accepted the node.
Result<std::unique_ptr<BoundOp>> bind_block_embedding(const BindArgs& args);

}  // namespace tessera
