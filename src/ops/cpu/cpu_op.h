// A BoundOp that launches one trivially copyable callable on a CPU stream. Most CPU kernels are bound in this way:
//   return make_cpu_op("rms_norm", [=] { … });
#pragma once

#include <memory>
#include <utility>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/ops/contract/op.h"

namespace tessera {
namespace internal {

template <class F>
class CpuOp final : public BoundOp {
 public:
  CpuOp(const char* name, F kernel) : name_(name), kernel_(std::move(kernel)) {}
  Status enqueue(Stream& stream) const override { return as_cpu(stream).launch(name_, kernel_); }

 private:
  const char* name_;
  F kernel_;
};

}  // namespace internal

template <class F>
std::unique_ptr<BoundOp> make_cpu_op(const char* name, F kernel) {
  return std::make_unique<internal::CpuOp<F>>(name, std::move(kernel));
}

}  // namespace tessera
