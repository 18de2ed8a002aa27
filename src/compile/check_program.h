// What every compiler's program must keep.
#pragma once

#include "tessera/base/status.h"
#include "tessera/compile/program.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// Ok where `program` can stand for `piece`: values that exist, in the piece's types; every instruction with a kernel;
// nothing of the program is read before an instruction has written it; every output of the piece that a kernel makes is
// made here too. kInternal names the value or the instruction.
Status check_program(const Program& program, const ir::Graph& piece, const ir::OpTable& ops);

}  // namespace tessera
