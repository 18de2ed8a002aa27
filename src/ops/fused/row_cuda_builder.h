// Row kernels on CUDA: generated source, compiled by NVRTC for the GPU's own architecture.
#pragma once

namespace tessera {

class RowKernelBuilder;

const RowKernelBuilder& cuda_row_kernels();

}  // namespace tessera
