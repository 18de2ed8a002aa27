// The declaration of an operator: all that a graph needs. Kernels are declared in ops/contract/op.h, so that
// graphs can be built, checked, split and printed without a device.
#pragma once

#include <cstdint>
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
  bool mutated = false;   // the operator writes this operand
  bool optional = false;  // trailing operands only: may be left out
};

// In the order of Attribute's alternatives.
enum class AttributeKind : std::uint8_t { kBool, kInt, kDouble, kString, kInts };
std::string_view attribute_kind_name(AttributeKind kind);  // "boolean" "integer" "double" "string" "integer list"

struct AttributeDecl {
  std::string_view name;
  AttributeKind kind;
  bool required = false;
};

// What a shape rule sees: operand types and the node's attributes.
struct OpSignature {
  std::span<const Type> operands;
  const Node& node;  // for attributes; its results are not made yet
};

enum class Execution : std::uint8_t {
  kKernel,    // a kernel runs
  kView,      // result 0 is operand 0's memory under another shape; nothing runs
  kAllocate,  // results are memory whose content a later node writes; nothing runs
};

struct OpDecl {
  std::string_view name;
  std::string_view summary;  // one line: the formula with shapes
  std::vector<OperandDecl> operands = {};
  std::vector<AttributeDecl> attributes = {};
  // Result types from operand types; refuses what the kernels cannot take, with the reason.
  Result<std::vector<Type>> (*infer)(const OpSignature& signature) = nullptr;

  // May be recorded into a graph. Forwards are cut at an operator that may not, whatever the split ops.
  bool capturable = true;
  // Cut here unless the user names other split ops.
  bool split_by_default = false;
  Execution execution = Execution::kKernel;
  // The native form: the same computation by simpler operators, into `builder`; results in order.
  Result<std::vector<ValueId>> (*decompose)(GraphBuilder& builder, const Node& node,
                                            std::span<const ValueId> operands) = nullptr;
};

// A lookup by name over an explicit list of declarations. Borrows them.
class OpTable {
 public:
  explicit OpTable(std::vector<const OpDecl*> declarations);
  // kInvalidArgument for a name that is taken.
  Status add(const OpDecl& declaration);
  const OpDecl* find(std::string_view name) const;
  // Error naming the unknown operator and the nearest declared ones.
  Result<const OpDecl*> get(std::string_view name) const;
  std::span<const OpDecl* const> all() const { return declarations_; }

 private:
  std::vector<const OpDecl*> declarations_;  // sorted by name
};

}  // namespace tessera::ir
