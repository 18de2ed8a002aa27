// A piece made executable.
//
//   Program       values and instructions; sizes are still symbols. Plain data, like ir::Graph: a compiler builds it,
//   and
//                 it can be printed (program_text.h), compared and patched
//   BoundProgram  the same for one bucket: every address, grid and matmul algorithm is decided
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

// What instructions read and write.
struct ProgramValue {
  std::string name;
  ir::Type type;
  ir::ValueKind kind = ir::ValueKind::kResult;  // kInput: made outside of the piece, a value of another piece included
  ir::ValueId of_piece = kNoValue;              // the same value in the piece's graph; kNoValue: the compiler's own
  ir::ValueId view_of = kNoValue;               // an earlier value of the program, whose memory this one shares
};

// The code of an instruction: a registered kernel, or what a compiler has generated.
struct InstructionKernel {
  std::string name;  // "onednn", "cpu"
  std::function<Result<std::unique_ptr<BoundOp>>(const BindArgs& args)> bind;
  std::function<Result<std::size_t>(const BindArgs& args)> workspace_bytes{};  // empty: no scratch
};

// A kernel that may run an instruction and those after it at once (JoinedKernelDef, ops/contract/op.h).
struct Join {
  std::string name;
  std::size_t instructions = 0;  // with the first
  std::int64_t most_rows = 0;    // of the first instruction's first operand
  std::function<Result<std::unique_ptr<BoundOp>>(std::span<const BindArgs> calls)> bind;  // null: it does not serve
};

struct Instruction {
  // Operator, attributes, operands and results, which are values of the program. No node of the graph has to be like
  // it: a compiler may invent the operator's name.
  ir::Node call;
  InstructionKernel kernel;
  std::vector<ir::Dim> grid{};  // blocks in x, y and z, where the compiler decides them; empty: binding does
  std::string listing{};        // what generated code computes, in lines; empty for a registered kernel
  // In order of preference; the first that serves a bucket runs there. Operands and results of all their instructions
  // keep their memory until the last one, in buckets of at most `most_rows` rows.
  std::vector<Join> joins{};
};

// Runs `call` by a registered kernel.
Instruction make_instruction(ir::Node call, const KernelDef& kernel);

// Where and for which sizes a program is bound.
struct BindTarget {
  const ir::Bucket& bucket;
  std::span<const DeviceAddress> addresses;  // [values]
  DeviceAddress workspace = {};              // at least Program::workspace_bytes(bucket) bytes
  Device& device;
  const ForwardContext& context;  // outlives the bound program
  // [values]: names in errors, for a program that serves several pieces; outlive the bound program. Empty: the
  // program's own.
  std::span<const std::string> names{};
};

struct Program;

class BoundProgram {
 public:
  // `program` and `names` outlive this and stay where they are.
  BoundProgram(const Program& program, std::span<const std::string> names, std::vector<std::unique_ptr<BoundOp>> ops)
      : program_(&program), names_(names), ops_(std::move(ops)) {}

  // Asynchronous on `stream`; an error names the operator and its result.
  Status enqueue(Stream& stream) const;
  // One instruction of it. Precondition: instruction < num_instructions().
  Status enqueue_instruction(std::size_t instruction, Stream& stream) const;
  // `status` with the instruction's operator and result.
  Status with_instruction(Status status, std::size_t instruction) const;

  std::size_t num_instructions() const { return ops_.size(); }
  // Null: one kernel, or operator of two halves, runs it with an instruction after it.
  const BoundOp* op(std::size_t instruction) const { return ops_[instruction].get(); }

 private:
  const Program* program_;
  std::span<const std::string> names_;
  std::vector<std::unique_ptr<BoundOp>> ops_;  // [instructions]
};

// Instructions [first, end), which run in two halves of their rows (halves.h) in buckets of so many tokens.
struct Halves {
  std::size_t first = 0;
  std::size_t end = 0;
  std::int64_t least_tokens = 0;

  bool serve(const ir::Bucket& bucket) const { return bucket[ir::Symbol::kTokens] >= least_tokens; }
};

struct Program {
  std::vector<ProgramValue> values;
  std::vector<Instruction> instructions;  // in execution order
  std::vector<Halves> halves{};           // in order; none share an instruction
  std::vector<std::string> notes{};       // what its compiler has to say of it, as why nothing was fused

  const ProgramValue& value(ir::ValueId id) const { return values[id.index()]; }

  // Rows of the instruction's first operand; 0 where it has none.
  Result<std::int64_t> rows_of(const Instruction& instruction, const ir::Bucket& bucket) const;
  // Scratch that any instruction needs for the bucket; they run one after another and share it. Of instructions that
  // run in halves as much as whole, too: the largest bucket's is enough for smaller ones, which may run whole.
  Result<std::size_t> workspace_bytes(const ir::Bucket& bucket, Device& device, const ForwardContext& context) const;
  // The program outlives what is bound and stays where it is.
  Result<BoundProgram> bind(const BindTarget& target) const;
};

// A value of `type` at `data`, with the bucket's numbers.
Result<TensorView> make_view(const ir::Type& type, const ir::Bucket& bucket, DeviceAddress data);

}  // namespace tessera
