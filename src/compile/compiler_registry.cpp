#include "tessera/compile/compiler_registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/compile/eager.h"
#include "tessera/compile/fused/fused.h"

namespace tessera {
namespace {

auto named(std::string_view name) {
  return [name](const auto& compiler) { return compiler.first == name; };
}

}  // namespace

Status CompilerRegistry::add(std::string name, Factory factory) {
  if (check(name).ok()) return invalid_argument(fmt::format("a compiler named \"{}\" is registered already", name));
  compilers_.emplace_back(std::move(name), std::move(factory));
  return ok_status();
}

Status CompilerRegistry::check(std::string_view name) const {
  if (std::any_of(compilers_.begin(), compilers_.end(), named(name))) return ok_status();
  std::string known;
  for (const auto& compiler : compilers_) known += (known.empty() ? "" : ", ") + compiler.first;
  return invalid_argument(fmt::format("no compiler is named \"{}\"; there are {}", name, known));
}

Result<std::unique_ptr<Compiler>> CompilerRegistry::make(std::string_view name, const CompilerContext& context) const {
  TRY(check(name));
  return std::find_if(compilers_.begin(), compilers_.end(), named(name))->second(context);
}

CompilerRegistry built_in_compilers() {
  CompilerRegistry compilers;
  (void)compilers.add("eager", make_eager_compiler);
  (void)compilers.add(std::string(kFusedCompiler), make_fused_compiler);
  return compilers;
}

}  // namespace tessera
