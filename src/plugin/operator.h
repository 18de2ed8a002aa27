// Operators of plugins: makes an operator's declaration from a plugin's table.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/compile/pass.h"
#include "tessera/ir/op_decl.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// A plugin's operator. Immutable.
class Operator : public std::enable_shared_from_this<Operator> {
 public:
  // Checks the table, and checks the native form with the table's example. `ops`: the operators that native forms may
  // use; they outlive the object.
  static Result<std::shared_ptr<const Operator>> create(const tessera_plugin_operator* given, const ir::OpTable& ops);
  // Returns the operator whose declaration this is; null for an operator of the engine.
  static std::shared_ptr<const Operator> of(const ir::OpDecl& decl);
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  // Returns the declaration. It and its copies are valid while this object lives.
  const ir::OpDecl& decl() const { return decl_; }
  bool is_row_independent() const { return table_.row_independent != 0; }
  // Returns whether a pass replaces the native form by the operator.
  bool fuses() const { return table_.fuses != 0; }
  // Returns the pass that replaces the native form by the operator. The pass shares this object.
  Result<Pass> fusing_pass() const;

  Result<std::vector<ir::Type>> infer(const ir::OpSignature& signature) const;
  Result<std::vector<ir::ValueId>> decompose(ir::GraphBuilder& builder, const ir::Node& node,
                                             std::span<const ir::ValueId> operands) const;

 private:
  // The declaration's shape rule. Its type lets of() find the operator.
  struct Infer {
    const Operator* op;
    Result<std::vector<ir::Type>> operator()(const ir::OpSignature& signature) const { return op->infer(signature); }
  };

  Operator(const tessera_plugin_operator& table, ir::OpTable ops);
  Status check_native_form() const;

  tessera_plugin_operator table_;
  ir::OpTable ops_;
  ir::OpDecl decl_;
  std::string pass_name_;
};

}  // namespace tessera::plugin
