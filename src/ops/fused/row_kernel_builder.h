// How a device turns row kernels into code that it can run. A device has one builder in its backend
// (Backend::row_kernels). The CPU's builder walks over the kernel (row_cpu.cpp); CUDA's generates and compiles source
// (row_cuda_builder.cpp).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/fused/row_kernel.h"

namespace tessera {

// A row kernel that a device can bind. Immutable; it outlives the operators that it binds.
class RowKernelCode {
 public:
  virtual ~RowKernelCode() = default;
  // The number of rows of the operands.
  virtual std::int64_t rows(const BindArgs& args) const = 0;
  // The ways to share the operands' rows out among threads, as numbers that only the device interprets. The first is
  // used where no other was measured to be faster. All give the same bits.
  virtual std::vector<std::int64_t> schedules(const BindArgs& args) const = 0;
  // Precondition: `schedule` is one of schedules(args).
  virtual Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args, std::int64_t schedule) const = 0;
  // A workspace that is large enough for every schedule, in bytes.
  virtual Result<std::size_t> workspace_bytes(const BindArgs& /*args*/) const { return std::size_t{0}; }
};

// Stateless and thread-safe; lives to the end of the process.
class RowKernelBuilder {
 public:
  virtual ~RowKernelBuilder() = default;
  // The name shown as the kernel of an instruction: "cpu", "nvrtc".
  virtual std::string_view name() const = 0;
  // The architecture and compiler that code depends on besides its source. kNotFound where there is no compiler, with
  // the names that were looked for.
  virtual Result<std::string> version(Device& device) const = 0;
  // The text that is compiled; equal sources give equal code. kUnimplemented where the device cannot generate code for
  // the kernel.
  virtual Result<std::string> source(const RowKernel& kernel) const = 0;
  // Returns machine code that can be stored; "" where there is nothing to compile. May take a second.
  virtual Result<std::string> compile(const std::string& source, Device& device) const = 0;
  // Loads code, which may come from an earlier process. It must not be called while a stream records.
  virtual Result<std::shared_ptr<const RowKernelCode>> load(const RowKernel& kernel, const std::string& code,
                                                            Device& device) const = 0;
};

}  // namespace tessera
