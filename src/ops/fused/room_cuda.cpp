#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/fused/row_cuda_builder.h"

namespace tessera {

void add_row_kernels_cuda(Backend& backend) { backend.row_kernels = cuda_row_kernels; }

}  // namespace tessera
