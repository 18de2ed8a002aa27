#include "tessera/piecewise/compiled_forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "tessera/compile/eager.h"
#include "tessera/compile/halves.h"
#include "tessera/piecewise/halved_rows.h"

namespace tessera {
namespace {

class ForwardCompiler {
 public:
  ForwardCompiler(const StitchingGraph& graph, const Compiler& compiler) : graph_(graph), compiler_(compiler) {
    forward_.name = graph.name;
    forward_.slots = graph.slots;
    forward_.outputs = graph.outputs;
    forward_.memory_of.resize(graph.slots.size());
    std::iota(forward_.memory_of.begin(), forward_.memory_of.end(), 0);
  }

  Result<CompiledForward> compile() {
    for (const Part& part : graph_.parts) {
      std::shared_ptr<const Program> program = TRY(program_of(part).with_context(part.name));
      forward_.parts.push_back(place(part, std::move(program)));
    }
    if (compiler_.context().options.halves_from > 0) check_halves();
    return std::move(forward_);
  }

 private:
  Result<std::shared_ptr<const Program>> program_of(const Part& part) {
    std::shared_ptr<Program>& program = programs_[{part.kind, structure_key(part.graph)}];
    if (program != nullptr) {
      ++forward_.counts.shared;
      return program;
    }
    if (part.kind == Part::Kind::kSplitOp) {
      const CompilerContext& context = compiler_.context();
      program = std::make_shared<Program>(TRY(eager_program(part.graph, context.ops, context.kernels)));
      return program;
    }
    CompiledPiece compiled = TRY(compile_piece(compiler_, part.graph));
    ++(compiled.loaded ? forward_.counts.loaded : forward_.counts.compiled);
    program = std::make_shared<Program>(std::move(compiled.program));
    if (const std::int64_t from = compiler_.context().options.halves_from; from > 0) add_halves(*program, from);
    return program;
  }

  // Checks whether programs can run in halves (compile/halves.h). If none can, or if halves would change the forward's
  // result, makes all programs run whole and adds a note with the reason.
  void check_halves() {
    const std::string why = why_not_in_halves(forward_);
    if (why.empty()) return;
    for (auto& [key, program] : programs_) program->halves.clear();
    forward_.notes.push_back("two-batch overlap is left out: " + why);
  }

  // Assigns slots to the program's values.
  CompiledPart place(const Part& part, std::shared_ptr<const Program> program) {
    CompiledPart placed{.kind = part.kind, .name = part.name};
    for (const ProgramValue& value : program->values) {
      std::int32_t slot;
      if (value.of_piece == kNoValue) {
        slot = static_cast<std::int32_t>(forward_.slots.size());
        placed.value_names.push_back(fmt::format("{}: {}", part.name, value.name));
        forward_.slots.push_back({.name = placed.value_names.back(), .type = value.type});
        forward_.memory_of.push_back(slot);
      } else {
        slot = part.slots[value.of_piece.index()];
        placed.value_names.push_back(part.graph.value(value.of_piece).name);
      }
      placed.slots.push_back(slot);
      if (value.view_of != kNoValue) {
        const auto viewed = static_cast<std::size_t>(placed.slots[value.view_of.index()]);
        forward_.memory_of[static_cast<std::size_t>(slot)] = forward_.memory_of[viewed];
      }
    }
    for (const ir::ValueId output : part.graph.outputs) {
      const auto made = std::find_if(program->values.begin(), program->values.end(),
                                     [&](const ProgramValue& value) { return value.of_piece == output; });
      placed.outputs.emplace_back(static_cast<std::int32_t>(made - program->values.begin()));
    }
    placed.program = std::move(program);
    return placed;
  }

  const StitchingGraph& graph_;
  const Compiler& compiler_;
  CompiledForward forward_;
  // The programs made so far. The key is the kind and the structure of a part.
  std::map<std::pair<Part::Kind, std::string>, std::shared_ptr<Program>> programs_;
};

}  // namespace

Result<CompiledForward> compile_forward(const StitchingGraph& graph, const Compiler& compiler) {
  return ForwardCompiler(graph, compiler).compile();
}

}  // namespace tessera
