// The compiler that fuses operators: *fused*, called *inductor* by SGLang. Groups of pointwise operators, row
// reductions and changes of shape become one kernel each (fusion_plan.h), for which the device generates code
// (ops/fused/row_kernel_builder.h). Other operators run by their registered kernels. A value that only its own group
// reads takes no memory.
//
// A kernel rounds a row wherever the operators round it. Results therefore differ from the eager compiler's only by the
// order of sums, which changes a few units in the last place of a value's dtype. A row's bits do not depend on the
// other rows.
//
// The handle is the generated code: the next process loads it and compiles nothing. A piece that cannot be compiled
// runs as the eager compiler runs it, with a warning and a note in its program.
#pragma once

#include <memory>

#include "tessera/compile/compiler.h"

namespace tessera {

// Makes the compiler. kUnimplemented if the device generates no code, kNotFound if the compiler that it needs is not
// there.
Result<std::unique_ptr<Compiler>> make_fused_compiler(const CompilerContext& context);

}  // namespace tessera
