// The compiler that fuses operators. Its name is *fused*; SGLang's name for such a compiler is *inductor*. It makes one
// kernel of each group of pointwise operators, row reductions and reshapes (fusion_plan.h). The device generates the
// kernel's code (ops/fused/row_kernel_builder.h). Other operators run with their registered kernels. A value that only
// its own group reads takes no memory.
//
// A generated kernel rounds a row at the same points as the operators do. Results therefore differ from the eager
// compiler's only by the order of sums, that is by a few units in the last place. The bits of a row do not depend on
// the other rows.
//
// The handle (compiler.h) is the generated code, so the next process loads it and compiles nothing. A piece that cannot
// be compiled runs as with the eager compiler. A warning, and a note in the piece's program, say so.
#pragma once

#include <memory>

#include "tessera/compile/compiler.h"

namespace tessera {

// Makes the compiler. Returns kUnimplemented if the device cannot generate code, and kNotFound if a tool that the code
// generation needs is missing.
Result<std::unique_ptr<Compiler>> make_fused_compiler(const CompilerContext& context);

}  // namespace tessera
