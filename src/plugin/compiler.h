// Makes compilers from plugins' tables.
#pragma once

#include <memory>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/compile/compiler.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// The checked copy of the table of functions with which a plugin implements a compiler. Immutable.
class CompilerTable {
 public:
  // Checks and copies the table. Returns kInvalidArgument if a required member is missing.
  static Result<std::shared_ptr<const CompilerTable>> create(const tessera_plugin_compiler* given);
  const tessera_plugin_compiler& get() const { return table_; }
  std::string_view name() const { return table_.name; }

 private:
  explicit CompilerTable(const tessera_plugin_compiler& table) : table_(table) {}
  tessera_plugin_compiler table_;
};

Result<std::unique_ptr<Compiler>> make_plugin_compiler(std::shared_ptr<const CompilerTable> table,
                                                       const CompilerContext& context);

}  // namespace tessera::plugin
