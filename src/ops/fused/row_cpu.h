// Row kernels on the CPU. Nothing is compiled at run time: a row's values lie in the cache as float32, and each
// operator is a loop over them that this program's compiler has vectorised. Sums have the same order as in the
// operators' own kernels.
#pragma once

namespace tessera {

class RowKernelBuilder;

const RowKernelBuilder& cpu_row_kernels();

}  // namespace tessera
