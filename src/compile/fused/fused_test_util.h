// A row-kernel builder for tests, in place of a device's builder. It keeps a list of the kernels that it compiles. A
// test can make it fail. The kernels run on the CPU.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "tessera/compile/compiler.h"
#include "tessera/ops/fused/row_cpu.h"
#include "tessera/ops/fused/row_kernel_builder.h"

namespace tessera::testing {

class CountingBuilder final : public RowKernelBuilder {
 public:
  std::string_view name() const override { return "counting"; }
  Result<std::string> version(Device& /*device*/) const override { return version_text; }
  Result<std::string> source(const RowKernel& kernel) const override { return cpu_row_kernels().source(kernel); }
  Result<std::string> compile(const std::string& source, Device& /*device*/) const override {
    if (fails) return unimplemented("the test's compiler is out of order");
    if (dies) static_cast<void>(raise(SIGKILL));
    compiled.push_back(source);
    return "code of " + source;
  }
  Result<std::shared_ptr<const RowKernelCode>> load(const RowKernel& kernel, const std::string& code,
                                                    Device& device) const override {
    if (code != "code of " + to_text(kernel)) return data_loss("code of another kernel");
    return cpu_row_kernels().load(kernel, "", device);
  }

  std::string version_text = "1";
  bool fails = false;
  bool dies = false;
  mutable std::vector<std::string> compiled;
};

}  // namespace tessera::testing
