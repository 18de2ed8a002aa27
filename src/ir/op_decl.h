// The declaration of an operator contains everything that graphs need to know about the operator. Kernels are declared
// separately, in ops/contract/op.h, so that graphs can be built, checked, split and printed without a device. The
// functions of a declaration have the type std::function, because the functions for a plugin's operator must capture
// the plugin's table of C functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"

namespace tessera::ir {

class GraphBuilder;

struct OperandDecl {
  std::string_view name;
  bool mutated = false;   // whether the operator writes this operand
  bool optional = false;  // whether the operand may be omitted; only for operands at the end
};

// The type of an attribute, in the order of Attribute's alternatives.
enum class AttributeKind : std::uint8_t { kBool, kInt, kDouble, kString, kInts };
std::string_view attribute_kind_name(AttributeKind kind);  // "boolean" "integer" "double" "string" "integer list"

struct AttributeDecl {
  std::string_view name;
  AttributeKind kind;
  bool required = false;
};

// The arguments of OpDecl::infer: operand types and the node's attributes.
struct OpSignature {
  std::span<const Type> operands;
  const Node& node;  // gives the attributes; its results are not made yet
};

enum class Execution : std::uint8_t {
  kKernel,    // a kernel runs
  kView,      // result 0 is the memory of operand 0 with another shape; nothing runs
  kAllocate,  // results are memory that a later node writes; nothing runs
};

// The rows on which a row of the results depends.
enum class RowUse : std::uint8_t {
  kMixed,  // several rows, a state, or unknown rows
  kByRow,  // only the same row of the operands, and weights
  // Only the row with the same number in the operands of this rank and of the other ranks. All ranks run the operator,
  // which exchanges each row separately.
  kExchange,
};

struct OpDecl {
  std::string_view name;
  std::string_view summary;  // one line with the formula and the shapes
  std::vector<OperandDecl> operands = {};
  std::vector<AttributeDecl> attributes = {};
  // Infers the types of the results. Returns an error with the reason if kernels cannot accept the operands.
  std::function<Result<std::vector<Type>>(const OpSignature& signature)> infer{};

  // Whether the operator may run while a stream is recorded. If not, forwards are always cut at this operator, even if
  // the user names other split ops.
  bool capturable = true;
  // Whether forwards are cut at the operator unless the user names other split ops.
  bool split_by_default = false;
  Execution execution = Execution::kKernel;
  // kByRow and kExchange let two-batch overlap run the operator on half of its rows (compile/halves.h).
  RowUse rows = RowUse::kMixed;
  // Builds the operator's native form in `builder`. A native form is the same computation with simpler operators.
  // Returns the operator's results in order. Null if the operator has no native form.
  std::function<Result<std::vector<ValueId>>(GraphBuilder& builder, const Node& node,
                                             std::span<const ValueId> operands)>
      decompose{};
};

// A list of declarations with a lookup by name. The declarations must outlive the list.
class OpTable {
 public:
  explicit OpTable(std::vector<const OpDecl*> declarations);
  // Returns kInvalidArgument if the name is taken.
  Status add(const OpDecl& declaration);
  const OpDecl* find(std::string_view name) const;
  // Returns the declaration. If the operator is unknown, the error names it and the declared operators with the most
  // similar names.
  Result<const OpDecl*> get(std::string_view name) const;
  std::span<const OpDecl* const> all() const { return declarations_; }

 private:
  std::vector<const OpDecl*> declarations_;  // sorted by name
};

}  // namespace tessera::ir
