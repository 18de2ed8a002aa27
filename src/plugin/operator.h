// Operators from outside: a declaration made of a plugin's table.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/compile/pass.h"
#include "tessera/ir/op_decl.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

class Operator {
 public:
  // Checks the table, and the native form by its example. `ops`: what native forms may be made of; the operators that
  // it borrows outlive this. kInvalidArgument for a name that another library has in this process.
  static Result<std::shared_ptr<const Operator>> create(const tessera_plugin_operator* given, const ir::OpTable& ops);
  // Of this process; null where no plugin brought one of that name.
  static std::shared_ptr<const Operator> find(std::string_view name);

  const ir::OpDecl& decl() const { return decl_; }
  bool is_row_independent() const { return table_.row_independent != 0; }
  // The pass that puts the operator in the place of its native form.
  bool fuses() const { return table_.fuses != 0; }
  // `self` is this one, which the pass then shares.
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
