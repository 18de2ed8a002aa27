// The lists to which each room (subfolder) of ops/ adds its operators and kernels (contract/rooms.h).
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// The declarations of operators for graphs, and the CPU's kernels.
struct OpList {
  std::vector<const ir::OpDecl*> ops;
  std::vector<KernelDef> cpu_kernels;

  void add(std::initializer_list<const ir::OpDecl*> more_ops, std::initializer_list<KernelDef> more_kernels) {
    ops.insert(ops.end(), more_ops);
    cpu_kernels.insert(cpu_kernels.end(), more_kernels);
  }
};

// The kernels of one device: kernels of single operators, and kernels that replace several operators.
struct KernelList {
  std::vector<KernelDef> kernels;
  std::vector<JoinedKernelDef> joined;

  void add(std::initializer_list<KernelDef> more) { kernels.insert(kernels.end(), more); }
  void add_joined(std::span<const JoinedKernelDef> more) { joined.insert(joined.end(), more.begin(), more.end()); }
};

}  // namespace tessera
