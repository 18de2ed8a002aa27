#include "tessera/compile/eager.h"

#include "tessera/compile/joins.h"

namespace tessera {
namespace {

class EagerCompiler final : public Compiler {
 public:
  using Compiler::Compiler;

  std::string_view name() const override { return "eager"; }
  Hash128 hash() const override { return Hasher().finish(); }

  Result<CompilerOutput> compile(const ir::Graph& piece) const override {
    return CompilerOutput{.program = TRY(eager_program(piece, context().ops, context().kernels))};
  }
  Result<Program> load(const ir::Graph& /*piece*/, const Json& /*handle*/) const override {
    return unimplemented("it writes no handles");
  }
};

}  // namespace

std::unique_ptr<Compiler> make_eager_compiler(const CompilerContext& context) {
  return std::make_unique<EagerCompiler>(context);
}

Result<Program> eager_program(const ir::Graph& piece, const ir::OpTable& ops, const KernelTable& kernels) {
  Program program;
  for (std::size_t i = 0; i < piece.values.size(); ++i) {
    const ir::Value& value = piece.values[i];
    program.values.push_back({.name = value.name,
                              .type = value.type,
                              .kind = value.kind,
                              .of_piece = ir::ValueId(static_cast<std::int32_t>(i))});
  }
  for (const ir::Node& node : piece.nodes) {
    const ir::OpDecl* decl = TRY(ops.get(node.op));
    switch (decl->execution) {
      case ir::Execution::kKernel:
        program.instructions.push_back(make_instruction(node, *decl, *TRY(kernels.get(decl->name))));
        break;
      case ir::Execution::kView: program.values[node.results[0].index()].view_of = node.operands[0]; break;
      case ir::Execution::kAllocate: break;  // no instruction, because the memory plan places the value
    }
  }
  add_joins(program, piece.outputs, kernels.joined());
  return program;
}

}  // namespace tessera
