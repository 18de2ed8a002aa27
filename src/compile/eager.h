// The compiler that fuses nothing.
#pragma once

#include <memory>

#include "tessera/compile/compiler.h"

namespace tessera {

// Runs each operator by its registered kernel, in the graph's order. It keeps no handles, because compiling costs
// nothing.
std::unique_ptr<Compiler> make_eager_compiler(const CompilerContext& context);

// Makes the program to which make_eager_compiler() compiles a piece. Every split operator runs this way too.
Result<Program> eager_program(const ir::Graph& piece, const ir::OpTable& ops, const KernelTable& kernels);

}  // namespace tessera
