// How a device turns row kernels into something that runs. A device has one in its backend (Backend::row_kernels); the
// CPU's walks over the kernel (row_cpu.cpp), CUDA's generates and compiles source (row_cuda_builder.cpp).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/fused/row_kernel.h"

namespace tessera {

// A row kernel that a device can bind. Immutable; outlives what it binds.
class RowKernelCode {
 public:
  virtual ~RowKernelCode() = default;
  // Of the operands.
  virtual std::int64_t rows(const BindArgs& args) const = 0;
  // Ways to share so many rows out among threads, as numbers whose meaning is the device's; the first is taken where
  // none was measured to be faster. All give the same bits.
  virtual std::vector<std::int64_t> schedules(const BindArgs& args) const = 0;
  // Precondition: `schedule` is one of schedules(args).
  virtual Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args, std::int64_t schedule) const = 0;
  // Enough for each of them.
  virtual Result<std::size_t> workspace_bytes(const BindArgs& /*args*/) const { return std::size_t{0}; }
};

// Stateless and thread-safe; lives to the end of the process.
class RowKernelBuilder {
 public:
  virtual ~RowKernelBuilder() = default;
  // Shown as the kernel of an instruction: "cpu", "nvrtc".
  virtual std::string_view name() const = 0;
  // What code depends on beside its source: architecture and compiler. kNotFound where there is no compiler, with what
  // was looked for.
  virtual Result<std::string> version(Device& device) const = 0;
  // What is compiled; equal sources give equal code. kUnimplemented where the device has no code for the kernel.
  virtual Result<std::string> source(const RowKernel& kernel) const = 0;
  // Machine code, to be kept; "" where there is nothing to compile. May take a second.
  virtual Result<std::string> compile(const std::string& source, Device& device) const = 0;
  // Not while a stream records. The code may be of an earlier process.
  virtual Result<std::shared_ptr<const RowKernelCode>> load(const RowKernel& kernel, const std::string& code,
                                                            Device& device) const = 0;
};

}  // namespace tessera
