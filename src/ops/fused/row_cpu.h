// Runs row kernels (row_kernel.h) on the CPU. Nothing is compiled at run time. The values of a row stay in the CPU's
// cache as float32, and each operator is a loop over these values. The loops were vectorised when this program was
// compiled. Sums have the same order as in the operators' own kernels.
#pragma once

namespace tessera {

class RowKernelBuilder;

const RowKernelBuilder& cpu_row_kernels();

}  // namespace tessera
