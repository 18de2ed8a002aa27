// A BoundOp that launches CUDA kernels on a stream: what most CUDA kernels are.
//
//   return make_cuda_op("silu_mul", [=](cudaStream_t stream) { silu_mul<<<grid, block, 0, stream>>>(…); });
//
// The callable may return cudaError_t or Status; launch errors are found either way. It is called eagerly and
// while the stream records, and must enqueue the same launches each time.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/ops/op.h"

namespace tessera {
namespace internal {

template <class F>
class CudaOp final : public BoundOp {
 public:
  CudaOp(const char* name, F launch) : name_(name), launch_(std::move(launch)) {}
  Status enqueue(Stream& stream) const override {
    CudaStream& cuda = as_cuda(stream);
    TRY(cuda.begin_launch(name_));
    using Outcome = std::invoke_result_t<const F&, cudaStream_t>;
    if constexpr (std::is_same_v<Outcome, Status>) {
      TRY(launch_(cuda.handle()));
    } else if constexpr (std::is_same_v<Outcome, cudaError_t>) {
      if (const cudaError_t error = launch_(cuda.handle()); error != cudaSuccess) {
        static_cast<void>(cudaGetLastError());  // or the next launch is blamed for it
        return cuda.launch_error(name_, error);
      }
    } else {
      launch_(cuda.handle());
    }
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return cuda.launch_error(name_, error);
    return ok_status();
  }

 private:
  const char* name_;
  F launch_;
};

}  // namespace internal

// `name` is a string literal.
template <class F>
std::unique_ptr<BoundOp> make_cuda_op(const char* name, F launch) {
  return std::make_unique<internal::CudaOp<F>>(name, std::move(launch));
}

}  // namespace tessera
