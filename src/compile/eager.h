// The compiler that fuses nothing.
#pragma once

#include <memory>

#include "tessera/compile/compiler.h"

namespace tessera {

// Each operator by its registered kernel, in the graph's order. It keeps no handles: to compile costs nothing.
std::unique_ptr<Compiler> make_eager_compiler(const CompilerContext& context);

// What make_eager_compiler compiles a piece to, and how every split operator runs.
Result<Program> eager_program(const ir::Graph& piece, const ir::OpTable& ops, const KernelTable& kernels);

}  // namespace tessera
