// A program is the executable form of a piece. A piece is a part of the model's graph between two operators at which
// the graph is cut (piecewise/).
//
//   Program       values and instructions; sizes are still symbols. It is plain data, like ir::Graph: a compiler builds
//                 it, and it can be printed (program_text.h), compared and changed.
//   BoundProgram  a program for one bucket, with fixed addresses, grids and matmul algorithms.
//
// Eager runs, warm-up and capture all call BoundProgram::enqueue(). If the stream is being captured, this call adds the
// piece to the captured graph. Otherwise it runs the piece.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

inline constexpr ir::ValueId kNoValue{-1};

// A value that instructions read and write.
struct ProgramValue {
  std::string name;
  ir::Type type;
  // kInput means that the value is made outside of the piece, possibly by another piece.
  ir::ValueKind kind = ir::ValueKind::kResult;
  ir::ValueId of_piece = kNoValue;  // the same value in the piece's graph, or kNoValue if the compiler added it
  ir::ValueId view_of = kNoValue;   // an earlier value of the program whose memory this value shares
};

// The code of an instruction: a registered kernel, or code that a compiler generated.
struct InstructionKernel {
  std::string name;  // for example "onednn" or "cpu"
  std::function<Result<std::unique_ptr<BoundOp>>(const BindArgs& args)> bind;
  std::function<Result<std::size_t>(const BindArgs& args)> workspace_bytes{};  // empty if the kernel needs no scratch
};

// A kernel that may run an instruction together with the following ones (JoinedKernelDef, ops/contract/op.h).
struct Join {
  std::string name;
  std::size_t instructions = 0;  // number of instructions, including the first
  std::int64_t most_rows = 0;    // maximum number of rows of the first instruction's first operand
  // Binds the joined kernel. Returns null if the kernel does not accept the calls.
  std::function<Result<std::unique_ptr<BoundOp>>(std::span<const BindArgs> calls)> bind;
};

struct Instruction {
  // The operator with its attributes, operands and results. Operands and results are values of the program. The piece's
  // graph may have no such node, because a compiler may invent the operator's name.
  ir::Node call;
  InstructionKernel kernel;
  // How the operator uses rows. Generated code works row by row.
  ir::RowUse rows = ir::RowUse::kMixed;
  std::vector<ir::Dim> grid{};  // number of blocks in x, y and z; if empty, binding decides
  std::string listing{};        // lines that describe generated code; empty for a registered kernel
  // The joins in order of preference. In each bucket, the first join that accepts the bucket runs. A join may accept a
  // bucket only if this instruction's first operand has at most Join::most_rows rows in the bucket. In every bucket
  // within this limit, the operands and results of all joined instructions stay live until the last of these
  // instructions, because one kernel may run them all.
  std::vector<Join> joins{};
};

// Makes the instruction that runs `call` with the registered kernel `kernel`. `op` declares the operator of `call`.
Instruction make_instruction(ir::Node call, const ir::OpDecl& op, const KernelDef& kernel);

// The memory, the device and the sizes for which a program is bound.
struct BindTarget {
  const ir::Bucket& bucket;
  std::span<const DeviceAddress> addresses;  // one for each value
  DeviceAddress workspace = {};              // at least Program::workspace_bytes(bucket) bytes
  Device& device;
  const ForwardContext& context;  // must outlive the bound program
  // For each value, the name to use in errors, if several pieces share the program. The names must outlive the bound
  // program. If empty, errors use the program's own names.
  std::span<const std::string> names{};
};

struct Program;

class BoundProgram {
 public:
  // `program` and `names` must outlive this object and must not move.
  BoundProgram(const Program& program, std::span<const std::string> names, std::vector<std::unique_ptr<BoundOp>> ops)
      : program_(&program), names_(names), ops_(std::move(ops)) {}

  // Enqueues all instructions, asynchronously on `stream`. An error names the operator and its result.
  Status enqueue(Stream& stream) const;
  // Enqueues one instruction. Precondition: instruction < num_instructions().
  Status enqueue_instruction(std::size_t instruction, Stream& stream) const;
  // Adds the instruction's operator and result to the text of `status`.
  Status with_instruction(Status status, std::size_t instruction) const;

  std::size_t num_instructions() const { return ops_.size(); }
  // Returns the bound operator of the instruction. Returns null if the operator of another instruction also runs this
  // instruction. The other operator is either a joined kernel, or an operator that runs a range of instructions in two
  // halves (Halves).
  const BoundOp* op(std::size_t instruction) const { return ops_[instruction].get(); }

 private:
  const Program* program_;
  std::span<const std::string> names_;
  std::vector<std::unique_ptr<BoundOp>> ops_;  // one for each instruction
};

// The range of instructions `first` … `end` - 1. In buckets of at least `least_tokens` tokens the range runs twice,
// each time on one half of the rows (halves.h).
struct Halves {
  std::size_t first = 0;
  std::size_t end = 0;
  std::int64_t least_tokens = 0;

  bool serve(const ir::Bucket& bucket) const { return bucket[ir::Symbol::kTokens] >= least_tokens; }
};

struct Program {
  std::vector<ProgramValue> values;
  std::vector<Instruction> instructions;  // in execution order
  std::vector<Halves> halves{};           // in order; they do not overlap
  std::vector<std::string> notes{};       // remarks of the compiler, such as why nothing was fused

  const ProgramValue& value(ir::ValueId id) const { return values[id.index()]; }

  // Returns the number of rows of the instruction's first operand, or 0 if the instruction has no operand.
  Result<std::int64_t> rows_of(const Instruction& instruction, const ir::Bucket& bucket) const;
  // Returns the bytes of scratch that the program needs in the bucket. Instructions run one after another and share the
  // scratch, so the result is the maximum over all instructions. If an instruction runs in halves, the result also
  // covers the scratch for running it on all rows at once. Smaller buckets may run the instruction on all rows, and
  // they share the scratch of the largest bucket.
  Result<std::size_t> workspace_bytes(const ir::Bucket& bucket, Device& device, const ForwardContext& context) const;
  // Binds the program for one bucket. The program must outlive the result and must not move.
  Result<BoundProgram> bind(const BindTarget& target) const;
};

// Makes a view of a value of type `type` at address `data`. The view has the dimensions of the type in the bucket.
Result<TensorView> make_view(const ir::Type& type, const ir::Bucket& bucket, DeviceAddress data);

}  // namespace tessera
