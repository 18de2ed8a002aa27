#include "tessera/ops/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera {

KernelTable::KernelTable(std::vector<KernelDef> kernels) : kernels_(std::move(kernels)) {
  std::sort(kernels_.begin(), kernels_.end(), [](const KernelDef& a, const KernelDef& b) { return a.op < b.op; });
}

Result<const KernelDef*> KernelTable::get(std::string_view op) const {
  const auto it = std::lower_bound(kernels_.begin(), kernels_.end(), op,
                                   [](const KernelDef& kernel, std::string_view name) { return kernel.op < name; });
  if (it == kernels_.end() || it->op != op)
    return unimplemented(fmt::format("this device has no kernel for operator '{}'", op));
  return &*it;
}

KernelTable KernelTable::with(const KernelDef& kernel) const {
  std::vector<KernelDef> kernels = kernels_;
  std::erase_if(kernels, [&](const KernelDef& known) { return known.op == kernel.op; });
  kernels.push_back(kernel);
  return KernelTable(std::move(kernels));
}

}  // namespace tessera
