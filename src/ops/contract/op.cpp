#include "tessera/ops/contract/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera {

KernelTable::KernelTable(std::vector<KernelDef> kernels, std::vector<JoinedKernelDef> joined)
    : kernels_(std::move(kernels)), joined_(std::move(joined)) {
  std::sort(kernels_.begin(), kernels_.end(), [](const KernelDef& a, const KernelDef& b) { return a.op < b.op; });
  std::stable_sort(joined_.begin(), joined_.end(),
                   [](const JoinedKernelDef& a, const JoinedKernelDef& b) { return a.num_ops() > b.num_ops(); });
}

const KernelDef* KernelTable::find(std::string_view op) const {
  const auto it = std::lower_bound(kernels_.begin(), kernels_.end(), op,
                                   [](const KernelDef& kernel, std::string_view name) { return kernel.op < name; });
  return it == kernels_.end() || it->op != op ? nullptr : &*it;
}

Result<const KernelDef*> KernelTable::get(std::string_view op) const {
  const KernelDef* kernel = find(op);
  if (kernel == nullptr) return unimplemented(fmt::format("this device has no kernel for operator '{}'", op));
  return kernel;
}

KernelTable KernelTable::with(const KernelDef& kernel) const {
  std::vector<KernelDef> kernels = kernels_;
  std::erase_if(kernels, [&](const KernelDef& known) { return known.op == kernel.op; });
  kernels.push_back(kernel);
  std::vector<JoinedKernelDef> joined = joined_;
  std::erase_if(joined, [&](const JoinedKernelDef& known) { return known.replaces(kernel.op); });
  return KernelTable(std::move(kernels), std::move(joined));
}

}  // namespace tessera
