// The operators that fuse_native_forms looks for.
//
// There are no hand-written patterns: the pattern of an operator is its own native form. A form gives the operand types
// and booleans for which the operator is decomposed to get that pattern. What is found is then compared with the
// operator decomposed for the real types (native_form.h). An operator whose native form has several structures has
// several forms.
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
  // An example that the operator accepts. Its booleans hold for every match; other attributes are only the example's.
  std::vector<ir::Type> operands;
  ir::Attributes attributes;
  // Adds what the native form's nodes do not carry under the same name, from the operands' types; null: nothing. It
  // may be given types that the operator refuses.
  void (*derive)(std::span<const ir::Type> operands, ir::Attributes& attributes) = nullptr;
  // Null: the declared one. An operator that is simple in itself, and takes on another one's work, declares none.
  Decompose decompose = nullptr;
};

// In the order in which they are looked for: a form that contains another one's operator stands behind it.
std::span<const FusedForm> fused_forms();

}  // namespace tessera
