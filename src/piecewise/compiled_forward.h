// A stitching graph (stitching.h) whose parts are compiled to programs. The values of the whole forward are
// numbered, and these numbers are called slots. A program numbers its values separately, and CompiledPart::slots maps
// each of them to a slot. So parts with the same structure, such as layers 2 to n of a model, share one program, and
// only their slots differ.
//
// Some values of a part's graph do not occur in its program, because the compiler has fused the operators that make and
// read them. A program may also have additional values, which get slots after those of the stitching graph.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/compiler.h"
#include "tessera/piecewise/stitching.h"

namespace tessera {

struct CompiledPart {
  Part::Kind kind = Part::Kind::kPiece;
  std::string name;                          // for example "piece 0"
  std::shared_ptr<const Program> program{};  // shared by all parts of the same structure
  std::vector<std::int32_t> slots{};         // for each value of the program, its index in CompiledForward::slots
  std::vector<std::string> value_names{};    // for each value of the program, its name in this part
  std::vector<ir::ValueId> outputs{};        // values of the program that another part or the caller reads

  // Returns whether a capture makes a graph of the part. It does if the part is a piece with at least one instruction.
  bool recordable() const { return kind == Part::Kind::kPiece && !program->instructions.empty(); }
};

struct CompileCounts {
  std::int64_t compiled = 0;  // programs that the compiler made
  std::int64_t loaded = 0;    // programs that were loaded from the cache
  std::int64_t shared = 0;    // parts that share the program of another part
};

struct CompiledForward {
  std::string name;
  std::vector<Slot> slots;
  // For each slot, the slot that owns its memory. For a view it is the slot of the viewed value, and for all other
  // slots it is the slot itself.
  std::vector<std::int32_t> memory_of;
  std::vector<CompiledPart> parts;    // in execution order
  std::vector<std::int32_t> outputs;  // output slots, in the order of the source graph's outputs
  CompileCounts counts;
  std::vector<std::string> notes{};  // what was requested but could not be done
};

// Compiles each piece, or reuses the program of an earlier part with the same structure. Split operators always run
// with their registered kernels and not with the compiler's. An error names the part.
Result<CompiledForward> compile_forward(const StitchingGraph& graph, const Compiler& compiler);

}  // namespace tessera
