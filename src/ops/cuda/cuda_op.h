// A BoundOp that launches CUDA kernels on a stream. Most CUDA kernels are bound in this way.
//
//   return make_cuda_op("silu_mul", [=](cudaStream_t stream) { silu_mul<<<grid, block, 0, stream>>>(…); });
//
// Launch errors are read from the runtime's last error. The callable runs both in eager forwards and while the stream
// records a graph, and must enqueue the same launches each time (BoundOp::enqueue() describes the only exception). The
// type of the callable identifies its kernels. If callables of one type may launch different kernels, `choice`
// (BoundOp::choice) distinguishes them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/ops/contract/op.h"

namespace tessera {
namespace internal {

template <class F>
class CudaOp final : public BoundOp {
 public:
  CudaOp(const char* name, F launch, std::uint64_t choice) : name_(name), launch_(std::move(launch)), choice_(choice) {}
  Status enqueue(Stream& stream) const override {
    CudaStream& cuda = as_cuda(stream);
    TRY(cuda.begin_launch(name_));
    launch_(cuda.handle());
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return cuda.launch_error(name_, error);
    return ok_status();
  }

 private:
  std::uint64_t choice() const override { return choice_; }

  const char* name_;
  F launch_;
  std::uint64_t choice_;
};

}  // namespace internal

inline bool is_recording(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status == cudaStreamCaptureStatusActive;
}

// Makes an operator that calls `launch`. `name` is a string literal.
template <class F>
std::unique_ptr<BoundOp> make_cuda_op(const char* name, F launch, std::uint64_t choice = 0) {
  return std::make_unique<internal::CudaOp<F>>(name, std::move(launch), choice);
}

}  // namespace tessera
