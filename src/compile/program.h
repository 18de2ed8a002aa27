// A piece in executable form.
//
//   Program       values and instructions; sizes are still symbols. Plain data, like ir::Graph: a compiler builds it,
//                 and it can be printed (program_text.h), compared and patched
//   BoundProgram  a program for one bucket: every address, grid and matmul algorithm is decided
//
// BoundProgram::enqueue() runs the piece now or, while the stream records, into a graph. Eager runs, warm-up and
// capture make the same calls.
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
  ir::ValueKind kind = ir::ValueKind::kResult;  // kInput: made outside of the piece, possibly by another piece
  ir::ValueId of_piece = kNoValue;              // the same value in the piece's graph; kNoValue: the compiler's own
  ir::ValueId view_of = kNoValue;               // an earlier value of the program with which this one shares memory
};

// The code of an instruction: a registered kernel, or code that a compiler has generated.
struct InstructionKernel {
  std::string name;  // "onednn", "cpu"
  std::function<Result<std::unique_ptr<BoundOp>>(const BindArgs& args)> bind;
  std::function<Result<std::size_t>(const BindArgs& args)> workspace_bytes{};  // empty: the kernel needs no scratch
};

// A kernel that may run an instruction and the following ones at once (JoinedKernelDef, ops/contract/op.h).
struct Join {
  std::string name;
  std::size_t instructions = 0;  // including the first
  std::int64_t most_rows = 0;    // upper bound of the rows of the first instruction's first operand
  // Binds the joined kernel. Returns null if the kernel does not accept the calls.
  std::function<Result<std::unique_ptr<BoundOp>>(std::span<const BindArgs> calls)> bind;
};

struct Instruction {
  // The operator with its attributes, and its operands and results, which are values of the program. The graph need not
  // have such a node: a compiler may invent the operator's name.
  ir::Node call;
  InstructionKernel kernel;
  ir::RowUse rows = ir::RowUse::kMixed;  // the operator's use of rows; generated code works by rows
  std::vector<ir::Dim> grid{};           // blocks in x, y and z if the compiler decides them; empty: binding decides
  std::string listing{};  // readable lines of what generated code computes; empty for a registered kernel
  // The joins in order of preference: the first one that accepts a bucket runs there. In buckets of at most `most_rows`
  // rows, operands and results of all joined instructions keep their memory until the last of these instructions.
  std::vector<Join> joins{};
};

// Makes an instruction that runs `call`, a call of the declared operator, by a registered kernel.
Instruction make_instruction(ir::Node call, const ir::OpDecl& op, const KernelDef& kernel);

// The memory, the device and the sizes for which a program is bound.
struct BindTarget {
  const ir::Bucket& bucket;
  std::span<const DeviceAddress> addresses;  // [values]
  DeviceAddress workspace = {};              // at least Program::workspace_bytes(bucket) bytes
  Device& device;
  const ForwardContext& context;  // outlives the bound program
  // [values]: names in errors, for a program that several pieces share; they must outlive the bound program. Empty: the
  // program's own names.
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
  // Returns null if this instruction runs as part of a later one, by a joined kernel or an operator of two halves.
  const BoundOp* op(std::size_t instruction) const { return ops_[instruction].get(); }

 private:
  const Program* program_;
  std::span<const std::string> names_;
  std::vector<std::unique_ptr<BoundOp>> ops_;  // [instructions]
};

// Instructions [first, end), which run in two halves of their rows (halves.h) in buckets of at least `least_tokens`
// tokens.
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

  // Returns the rows of the instruction's first operand; 0 if it has none.
  Result<std::int64_t> rows_of(const Instruction& instruction, const ir::Bucket& bucket) const;
  // Returns the scratch that any instruction needs for the bucket; instructions run one after another and share it. For
  // instructions that run in halves it includes the scratch of running whole, so that the largest bucket's scratch is
  // enough for smaller buckets, which may run whole.
  Result<std::size_t> workspace_bytes(const ir::Bucket& bucket, Device& device, const ForwardContext& context) const;
  // Binds the program for one bucket. The program must outlive the result and must not move.
  Result<BoundProgram> bind(const BindTarget& target) const;
};

// Makes a view of a value of `type` at `data`, with the bucket's numbers.
Result<TensorView> make_view(const ir::Type& type, const ir::Bucket& bucket, DeviceAddress data);

}  // namespace tessera
