// The compiler that fuses: *fused*, called *inductor* by SGLang. Groups of pointwise operators, row reductions and
// changes of shape become one kernel each (fusion_plan.h), for which the device generates code
// (ops/fused/row_kernel_builder.h); other operators run by their registered kernels. A value that only its group reads
// takes no memory.
//
// A row is rounded where the operators round it, so that programs differ from the eager compiler's by the order of sums
// alone: a few units in the last place of a value's dtype. A row's bits do not depend on the other rows.
//
// The code is the handle: the next process loads it and compiles nothing. A piece that cannot be compiled runs as the
// eager compiler runs it, with a warning and a note in its program.
#pragma once

#include <memory>

#include "tessera/compile/compiler.h"

namespace tessera {

// kUnimplemented for a device that generates no code, kNotFound where what it compiles with is not there.
Result<std::unique_ptr<Compiler>> make_fused_compiler(const CompilerContext& context);

}  // namespace tessera
