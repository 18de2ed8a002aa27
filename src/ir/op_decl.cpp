#include "tessera/ir/op_decl.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/nearest.h"

namespace tessera::ir {
namespace {

bool name_before(const OpDecl* decl, std::string_view name) { return decl->name < name; }

}  // namespace

std::string_view attribute_kind_name(AttributeKind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"boolean", "integer", "double", "string", "integer list"};
  static_assert(kNames.size() == std::variant_size_v<Attribute>);
  return kNames[static_cast<std::size_t>(kind)];
}

OpTable::OpTable(std::vector<const OpDecl*> declarations) : declarations_(std::move(declarations)) {
  std::sort(declarations_.begin(), declarations_.end(),
            [](const OpDecl* a, const OpDecl* b) { return a->name < b->name; });
}

Status OpTable::add(const OpDecl& declaration) {
  const auto at = std::lower_bound(declarations_.begin(), declarations_.end(), declaration.name, name_before);
  if (at != declarations_.end() && (*at)->name == declaration.name)
    return invalid_argument(fmt::format("an operator named '{}' is registered already", declaration.name));
  declarations_.insert(at, &declaration);
  return ok_status();
}

const OpDecl* OpTable::find(std::string_view name) const {
  const auto found = std::lower_bound(declarations_.begin(), declarations_.end(), name, name_before);
  return found != declarations_.end() && (*found)->name == name ? *found : nullptr;
}

Result<const OpDecl*> OpTable::get(std::string_view name) const {
  if (const OpDecl* decl = find(name)) return decl;
  std::vector<std::string_view> names;
  names.reserve(declarations_.size());
  for (const OpDecl* decl : declarations_) names.push_back(decl->name);
  const std::vector<std::string> near = nearest_names(name, names);
  if (near.empty()) return not_found(fmt::format("no operator is named '{}'", name));
  return not_found(fmt::format("no operator is named '{}'; near: {}", name, fmt::join(near, ", ")));
}

}  // namespace tessera::ir
