// Checks the rules that every compiler's program must obey.
#pragma once

#include "tessera/base/status.h"
#include "tessera/compile/program.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// Returns ok if `program` can replace `piece`. Otherwise returns kInternal with a message that names the value or the
// instruction at fault. The rules are as follows. If a value of the program corresponds to a value of the piece
// (ProgramValue::of_piece), the two must have the same kind and type. Every instruction must have a kernel and refer to
// existing values only. No result may be read before an instruction has written it. Every output of the piece must be a
// value of the program. If a kernel makes the output in the piece, an instruction of the program must write it.
Status check_program(const Program& program, const ir::Graph& piece, const ir::OpTable& ops);

}  // namespace tessera
