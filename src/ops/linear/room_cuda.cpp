#include <array>

#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/linear/linear.h"
#include "tessera/ops/linear/linear_cuda.h"
#include "tessera/ops/linear/linear_gelu.h"
#include "tessera/ops/linear/linear_residual.h"
#include "tessera/ops/linear/linear_tuning.h"

namespace tessera {

void add_linear_cuda(KernelList& list) {
  list.add({kLinearCuda});
  list.add_joined(joined_linear_kernels());
  list.add_joined(std::array{kLinearResidualNormCuda, kLinearGeluCuda});
}

void add_linear_algorithms_cuda(Backend& backend) {
  backend.versions = cublaslt_versions;
  backend.export_algorithms = cublaslt_algorithms;
  backend.import_algorithms = remember_cublaslt_algorithms;
  backend.learn_algorithms = learn_cublaslt_algorithms;
  backend.measure_algorithms = measure_cublaslt_algorithms;
  backend.start_libraries = start_cublaslt;
}

}  // namespace tessera
