// Holds the known compilers, by name.
//
//   CompilerRegistry compilers = built_in_compilers();
//   TRY(compilers.add("mine", [](const CompilerContext& context) { return std::make_unique<MyCompiler>(context); }));
//   std::unique_ptr<Compiler> compiler = TRY(compilers.make("mine", context));
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/compiler.h"

namespace tessera {

class CompilerRegistry {
 public:
  using Factory = std::function<Result<std::unique_ptr<Compiler>>(const CompilerContext& context)>;

  // Returns kInvalidArgument if the name is taken.
  Status add(std::string name, Factory factory);
  // Returns kInvalidArgument with the known names if the name is unknown.
  Status check(std::string_view name) const;
  Result<std::unique_ptr<Compiler>> make(std::string_view name, const CompilerContext& context) const;

 private:
  std::vector<std::pair<std::string, Factory>> compilers_;  // in the order in which they were added
};

CompilerRegistry built_in_compilers();  // contains the compilers eager and fused

}  // namespace tessera
