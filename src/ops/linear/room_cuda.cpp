#include <array>

#include "tessera/ops/linear/linear.h"
#include "tessera/ops/linear/linear_cuda.h"
#include "tessera/ops/linear/linear_gelu.h"
#include "tessera/ops/linear/linear_residual.h"
#include "tessera/ops/rooms.h"

namespace tessera {

void add_linear_cuda(KernelList& list) {
  list.add({kLinearCuda});
  list.add_joined(joined_linear_kernels());
  list.add_joined(std::array{kLinearResidualNormCuda, kLinearGeluCuda});
}

}  // namespace tessera
