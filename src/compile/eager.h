// The compiler *eager*, which fuses nothing.
#pragma once

#include <memory>

#include "tessera/compile/compiler.h"

namespace tessera {

// Makes a compiler that runs each operator with its registered kernel, in the graph's order. It saves no handles,
// because compiling costs nothing.
std::unique_ptr<Compiler> make_eager_compiler(const CompilerContext& context);

// Makes the program that the eager compiler makes of a piece. The operators at which a graph is split always get their
// programs from this function, even if another compiler compiles the pieces between them.
Result<Program> eager_program(const ir::Graph& piece, const ir::OpTable& ops, const KernelTable& kernels);

}  // namespace tessera
