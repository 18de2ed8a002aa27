#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/fused/row_cpu.h"

namespace tessera {

void add_row_kernels_cpu(Backend& backend) { backend.row_kernels = cpu_row_kernels; }

}  // namespace tessera
