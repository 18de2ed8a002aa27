// The operators that fuse_native_forms searches for.
//
// There are no hand-written patterns. The pattern of an operator is its native form, an equivalent graph of simpler
// operators. A FusedForm contains operand types and boolean attributes as an example. The operator is decomposed for
// this example, and the result is the pattern. Each match is then compared with the operator's decomposition for the
// real types (native_form.h). If an operator's native form depends on a boolean attribute, the operator has several
// FusedForms.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tessera/ir/builder.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

using Decompose = decltype(ir::OpDecl::decompose);

struct FusedForm {
  std::string_view op;
  // An example that the operator accepts. Every match has the same boolean attributes as the example, but its other
  // attributes may differ.
  std::vector<ir::Type> operands;
  ir::Attributes attributes;
  // Computes attributes of the operator from its operands' types. These attributes cannot be copied from the matched
  // nodes, because no node of the native form has attributes of these names. If `derive` is null, there are no such
  // attributes. `derive` may be called with types that the operator does not accept.
  void (*derive)(std::span<const ir::Type> operands, ir::Attributes& attributes) = nullptr;
  // Builds the form to search for. If null, the search is for the declared native form of `op`. The member is set if
  // the operator declares no native form but can do the work of other operators.
  Decompose decompose{};
};

// Returns the forms in the order in which they are searched. If the pattern of form A contains the operator of form B,
// then A comes after B.
std::span<const FusedForm> fused_forms();

}  // namespace tessera
