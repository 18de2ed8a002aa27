// The compiler *fused*, which fuses operators. The corresponding compiler in SGLang is *inductor*. The compiler makes
// one kernel for each group of pointwise operators, row reductions and reshapes (fusion_plan.h). The device generates
// the kernel's code (ops/fused/row_kernel_builder.h). Other operators run with their registered kernels. A value takes
// no memory if it is read only within the group that computes it.
//
// A generated kernel rounds a row at the same points as the operators do. Results therefore differ from those of the
// eager compiler only through the order of sums, by a few units in the last place. The bits of a row do not depend on
// the other rows.
//
// The handle (compiler.h) is the generated code, so the next process loads it and compiles nothing. If a piece cannot
// be compiled, it runs as with the eager compiler. A warning and a note in the piece's program report this.
#pragma once

#include <memory>

#include "tessera/compile/compiler.h"

namespace tessera {

// Makes the compiler. Returns kUnimplemented if the device cannot generate code, and kNotFound if a tool that the code
// generation needs is missing.
Result<std::unique_ptr<Compiler>> make_fused_compiler(const CompilerContext& context);

}  // namespace tessera
