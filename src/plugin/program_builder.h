// Lets a plugin's compiler build a program. Checks each value and instruction when it is added.
#pragma once

#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/compiler.h"
#include "tessera/compile/program.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

class ProgramBuilder {
 public:
  // Borrows both arguments. At first the program has the piece's values, including views, and no instructions.
  ProgramBuilder(const ir::Graph& piece, const CompilerContext& context);
  ProgramBuilder(const ProgramBuilder&) = delete;
  ProgramBuilder& operator=(const ProgramBuilder&) = delete;

  const tessera_plugin_program* table() const { return &table_; }
  // Returns the program. If any call failed, returns the first error, so that a plugin cannot ignore errors.
  Result<Program> finish();

  Status add_value(const char* name, const tessera_plugin_type* type, std::int32_t* id);
  Status keep_node(std::size_t node);
  Status add_instruction(const tessera_plugin_piece_node* node, const tessera_plugin_kernel* kernel,
                         const char* listing);
  void note(const char* text);
  Status keep(Status status);  // keeps the first error

 private:
  Result<std::vector<ir::ValueId>> values_of(const std::int32_t* ids, std::size_t count, const char* what) const;

  const ir::Graph& piece_;
  const CompilerContext& context_;
  Program program_;
  Status status_;
  tessera_plugin_program table_;
};

}  // namespace tessera::plugin
