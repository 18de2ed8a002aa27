#include "tessera/compile/compiler.h"

namespace tessera {
namespace {

class EagerCompiler final : public Compiler {
 public:
  EagerCompiler(const ir::OpTable& ops, const KernelTable& kernels) : ops_(ops), kernels_(kernels) {}

  std::string_view name() const override { return "eager"; }

  Result<Program> compile(ir::Graph piece) const override {
    std::vector<Program::Step> steps;
    for (std::size_t i = 0; i < piece.nodes.size(); ++i) {
      const ir::OpDecl* decl = TRY(ops_.get(piece.nodes[i].op));
      if (decl->execution != ir::Execution::kKernel) continue;
      steps.push_back({TRY(kernels_.get(decl->name)), ir::NodeId(static_cast<std::int32_t>(i))});
    }
    return Program(std::move(piece), std::move(steps));
  }

 private:
  const ir::OpTable& ops_;
  const KernelTable& kernels_;
};

}  // namespace

std::unique_ptr<Compiler> make_eager_compiler(const ir::OpTable& ops, const KernelTable& kernels) {
  return std::make_unique<EagerCompiler>(ops, kernels);
}

}  // namespace tessera
