// The interface by which a device turns row kernels into code. A device has a builder in its backend
// (Backend::row_kernels). The CPU's builder interprets the kernel (row_cpu.cpp); CUDA's builder generates and compiles
// source (row_cuda_builder.cpp).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/fused/row_kernel.h"

namespace tessera {

// A row kernel that a device can bind. It is immutable, and must outlive the operators that it binds.
class RowKernelCode {
 public:
  virtual ~RowKernelCode() = default;
  // Returns the number of rows of the operands.
  virtual std::int64_t rows(const BindArgs& args) const = 0;
  // Returns the ways to divide the operands' rows among threads, as numbers whose meaning the device defines. The first
  // number is used until another number is measured to be faster. All numbers give the same bits.
  virtual std::vector<std::int64_t> schedules(const BindArgs& args) const = 0;
  // Binds the kernel. Precondition: `schedule` is one of schedules(args).
  virtual Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args, std::int64_t schedule) const = 0;
  // Returns the size of a workspace that is enough for every schedule.
  virtual Result<std::size_t> workspace_bytes(const BindArgs& /*args*/) const { return std::size_t{0}; }
};

// Makes a device's code for row kernels. It is stateless and thread-safe, and lives until the process ends.
class RowKernelBuilder {
 public:
  virtual ~RowKernelBuilder() = default;
  // Returns the name that instructions show for row kernels of this builder: "cpu" or "nvrtc".
  virtual std::string_view name() const = 0;
  // Returns what the code depends on besides its source: architecture and compiler. Returns kNotFound, with the
  // searched places in the message, if there is no compiler.
  virtual Result<std::string> version(Device& device) const = 0;
  // Returns the source to compile; equal sources give equal code. Returns kUnimplemented if the device has no code for
  // the kernel.
  virtual Result<std::string> source(const RowKernel& kernel) const = 0;
  // Returns machine code, which later processes may use too, or "" if there is nothing to compile. Compiling may take a
  // second.
  virtual Result<std::string> compile(const std::string& source, Device& device) const = 0;
  // Loads code, which may come from an earlier process. Precondition: no stream records a graph.
  virtual Result<std::shared_ptr<const RowKernelCode>> load(const RowKernel& kernel, const std::string& code,
                                                            Device& device) const = 0;
};

}  // namespace tessera
