// Operators of plugins: a declaration made from a plugin's table.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/compile/pass.h"
#include "tessera/ir/op_decl.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

class Operator {
 public:
  // Checks the table, and the native form with the table's example. `ops`: the operators that native forms may use;
  // they outlive the object. kInvalidArgument for a name that another library has in this process.
  static Result<std::shared_ptr<const Operator>> create(const tessera_plugin_operator* given, const ir::OpTable& ops);
  // Finds an operator of this process; null if no plugin brought one of that name.
  static std::shared_ptr<const Operator> find(std::string_view name);

  const ir::OpDecl& decl() const { return decl_; }
  bool is_row_independent() const { return table_.row_independent != 0; }
  // Whether a pass replaces the native form by the operator.
  bool fuses() const { return table_.fuses != 0; }
  // Returns that pass. `self` is this object; the pass shares it.
  Result<Pass> fusing_pass(const std::shared_ptr<const Operator>& self) const;

  Result<std::vector<ir::Type>> infer(const ir::OpSignature& signature) const;
  Result<std::vector<ir::ValueId>> decompose(ir::GraphBuilder& builder, const ir::Node& node,
                                             std::span<const ir::ValueId> operands) const;

 private:
  Operator(const tessera_plugin_operator& table, ir::OpTable ops);
  Status check_native_form() const;

  tessera_plugin_operator table_;
  ir::OpTable ops_;
  ir::OpDecl decl_;
  std::string pass_name_;
};

}  // namespace tessera::plugin
