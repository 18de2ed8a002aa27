// Checks the rules that every compiler's program must obey.
#pragma once

#include "tessera/base/status.h"
#include "tessera/compile/program.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// Returns ok if `program` can replace `piece`. A value that stands for a value of the piece must have the kind and type
// of that value. Every instruction must have a kernel and refer to existing values only. No result may be read before
// an instruction has written it. Every output of the piece must be a value of the program. If a kernel makes the output
// in the piece, an instruction must write it. The error is kInternal and names the value or the instruction.
Status check_program(const Program& program, const ir::Graph& piece, const ir::OpTable& ops);

}  // namespace tessera
