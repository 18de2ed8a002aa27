// Checks the rules that every compiler's program must obey.
#pragma once

#include "tessera/base/status.h"
#include "tessera/compile/program.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// Returns ok if `program` can replace `piece`: its values exist and have the piece's types; every instruction has a
// kernel; no value of the program is read before an instruction has written it; and the program makes every output that
// a kernel makes in the piece. The error is kInternal and names the value or the instruction.
Status check_program(const Program& program, const ir::Graph& piece, const ir::OpTable& ops);

}  // namespace tessera
