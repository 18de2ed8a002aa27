// A compiler turns a piece's graph into a Program (E3). *eager* runs each operator by its registered
// kernel; further compilers fuse operators first.
#pragma once

#include <memory>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/compile/program.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual std::string_view name() const = 0;  // as --piecewise-cuda-graph-compiler spells it
  // `piece` is a part of a verified graph; the result serves every bucket.
  virtual Result<Program> compile(ir::Graph piece) const = 0;
};

// Each operator by its registered kernel, in the graph's order; nothing fused. Borrows both tables.
std::unique_ptr<Compiler> make_eager_compiler(const ir::OpTable& ops, const KernelTable& kernels);

}  // namespace tessera
