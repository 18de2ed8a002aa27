// Makes row kernels (row_kernel.h) for CUDA. Their source is generated, and NVRTC compiles it for the GPU's own
// architecture.
#pragma once

namespace tessera {

class RowKernelBuilder;

const RowKernelBuilder& cuda_row_kernels();

}  // namespace tessera
