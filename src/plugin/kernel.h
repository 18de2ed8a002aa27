// Implements kernels of plugins. Makes a kernel definition from a plugin's table, and binds the kernel.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/contract/op_plan.h"
#include "tessera/ops/device_registry.h"
#include "tessera/plugin/operator.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// The checked copy of the table of functions with which a plugin implements a kernel. Immutable.
class Kernel : public std::enable_shared_from_this<Kernel> {
 public:
  // Creates a kernel for an operator that occurs in graphs. Returns kInvalidArgument if a required member is missing,
  // and kNotFound if the operator is not in `ops`.
  static Result<std::shared_ptr<const Kernel>> create(const tessera_plugin_kernel* given, const ir::OpTable& ops);
  // Creates a kernel that is used only in the programs of a plugin's compiler. The kernel has no planner, and its
  // operator need not be declared.
  static Result<std::shared_ptr<const Kernel>> create_unnamed(const tessera_plugin_kernel* given);
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  std::string_view op() const { return table_.op; }
  std::string_view device() const { return table_.device; }
  std::string_view name() const { return table_.name; }
  const tessera_plugin_planner* planner() const { return table_.planner == nullptr ? nullptr : &planner_; }
  // Returns the kernel's definition for a DeviceRegistry. The definition shares ownership of the kernel.
  KernelDef def() const;

  Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) const;
  Result<std::size_t> workspace_bytes(const BindArgs& args) const;

  const tessera_plugin_kernel& table() const { return table_; }

 private:
  Kernel(const tessera_plugin_kernel& table, const tessera_plugin_planner& planner, std::shared_ptr<const Operator> op);
  static Result<std::shared_ptr<const Kernel>> checked(const tessera_plugin_kernel& table,
                                                       std::shared_ptr<const Operator> op);
  // Applies the operator's shape rule to the sizes of this bucket. Checks that the result types equal the types that
  // the rule gave for symbols, with this bucket's sizes in place of the symbols.
  Status check_shapes(const BindArgs& args) const;

  tessera_plugin_kernel table_;
  tessera_plugin_planner planner_;            // all members are null if the table has no planner
  OpPlanner op_planner_;                      // makes plans with `planner_`
  std::shared_ptr<const Operator> operator_;  // null for an operator of the engine, and for a compiler's kernel
};

}  // namespace tessera::plugin
