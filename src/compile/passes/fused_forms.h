// The operators that fuse_native_forms searches for.
//
// There are no hand-written patterns: the pattern of an operator is its own native form. A form gives operand types and
// booleans; the operator is decomposed for these to get the pattern. A match is then compared with the operator
// decomposed for the real types (native_form.h). An operator whose native form has several structures has several
// forms.
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
  // An example that the operator accepts. Every match has the example's booleans; its other attributes may differ.
  std::vector<ir::Type> operands;
  ir::Attributes attributes;
  // Adds attributes that no node of the native form carries under the same name, computed from the operands' types.
  // Null: there are none. It may be called with types that the operator refuses.
  void (*derive)(std::span<const ir::Type> operands, ir::Attributes& attributes) = nullptr;
  // The form to search for; null: the declared native form. It is set for an operator that has no native form but can
  // take over another operator's work.
  Decompose decompose{};
};

// Returns the forms in the order of the search: a form that contains another form's operator comes after it.
std::span<const FusedForm> fused_forms();

}  // namespace tessera
