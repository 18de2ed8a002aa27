// The compiler that fuses nothing.
#pragma once

#include <memory>

#include "tessera/compile/compiler.h"

namespace tessera {

// Makes a compiler that runs each operator with its registered kernel, in the graph's order. It saves no handles,
// because compiling costs nothing.
std::unique_ptr<Compiler> make_eager_compiler(const CompilerContext& context);

// Makes the program that the eager compiler makes of a piece. The operators at which a graph is split also get their
// programs from this function, whatever compiler compiles the pieces between them.
Result<Program> eager_program(const ir::Graph& piece, const ir::OpTable& ops, const KernelTable& kernels);

}  // namespace tessera
