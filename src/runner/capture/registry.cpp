#include "tessera/runner/capture/registry.h"

#include "tessera/ops/built_in_ops.h"

namespace tessera {

Registry built_in_registry() {
  return {.ops = built_in_ops(),
          .devices = built_in_devices(),
          .families = built_in_families(),
          .compilers = built_in_compilers(),
          .passes = {pass_list().begin(), pass_list().end()}};
}

std::shared_ptr<const Registry> shared_built_ins() {
  static const auto registry = std::make_shared<const Registry>(built_in_registry());
  return registry;
}

}  // namespace tessera
