#include "tessera/ops/cuda/sm90a_code.h"

#include <cuda_runtime.h>

namespace tessera {

bool runs_sm90a_code([[maybe_unused]] const void* kernel) {
#ifdef TESSERA_WITH_SM90A
  cudaFuncAttributes code{};
  if (cudaFuncGetAttributes(&code, kernel) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // clears the error, which the next launch would report as its own
    return false;
  }
  return code.binaryVersion == 90 && code.ptxVersion == 90;
#else
  return false;
#endif
}

}  // namespace tessera
