// Implements operators of plugins. Makes an operator's declaration from a plugin's table.
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
  // Checks the plugin's table. If the operator has a native form (the same computation by simpler operators), also
  // checks this form on the example in the table. `ops` lists the operators that native forms may use. The object
  // copies the list, and the declarations in it must outlive the object.
  static Result<std::shared_ptr<const Operator>> create(const tessera_plugin_operator* given, const ir::OpTable& ops);
  // Returns the plugin's operator that has this declaration. Returns null if the declaration is of one of the engine's
  // own operators.
  static std::shared_ptr<const Operator> of(const ir::OpDecl& decl);
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  // Returns the declaration. The declaration and its copies are valid as long as this object exists.
  const ir::OpDecl& decl() const { return decl_; }
  bool is_row_independent() const { return table_.row_independent != 0; }
  // Returns whether the plugin wants a fusing pass. The pass finds each occurrence of the operator's native form in a
  // graph, and replaces it by the operator.
  bool fuses() const { return table_.fuses != 0; }
  // Returns the fusing pass, which shares ownership of this object.
  Result<Pass> fusing_pass() const;

  Result<std::vector<ir::Type>> infer(const ir::OpSignature& signature) const;
  Result<std::vector<ir::ValueId>> decompose(ir::GraphBuilder& builder, const ir::Node& node,
                                             std::span<const ir::ValueId> operands) const;

 private:
  // The declaration's shape rule. It is a named type, so that of() can recognise it in a declaration and find the
  // operator.
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
