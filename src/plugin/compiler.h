// Makes compilers from plugins' tables.
#pragma once

#include <memory>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/compile/compiler.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// A plugin's table for a compiler, after checks. Immutable.
class CompilerTable {
 public:
  // Checks and copies the table. kInvalidArgument if it lacks something.
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
