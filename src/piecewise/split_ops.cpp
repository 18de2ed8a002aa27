#include "tessera/piecewise/split_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace tessera {
namespace {

struct Alias {
  std::string_view name;
  std::string_view op;
};
constexpr std::array kAliases = {
    Alias{"sglang.unified_attention_with_output", "attention"},
    Alias{"sglang.gdn_with_output", "gated_delta_net"},
    Alias{"sglang.inplace_all_reduce", "all_reduce"},
    Alias{"sglang.moe_forward_piecewise_cuda_graph_impl", "moe_experts"},
};

Result<std::string> resolve(const ir::OpTable& ops, const std::string& name) {
  const auto alias = std::find_if(kAliases.begin(), kAliases.end(), [&](const Alias& a) { return a.name == name; });
  const std::string op(alias == kAliases.end() ? name : alias->op);
  if (ops.find(op) != nullptr) return op;
  if (alias != kAliases.end())
    return unimplemented(fmt::format("split op: '{}' is the operator '{}', which does not exist yet", name, op));
  std::string registered;
  for (const ir::OpDecl* decl : ops.all())
    registered += fmt::format("{}{}", registered.empty() ? "" : ", ", decl->name);
  return not_found(fmt::format("split op: no operator is named '{}'; registered are {}", name, registered));
}

}  // namespace

std::vector<std::string> default_split_ops(const ir::OpTable& ops) {
  std::vector<std::string> names;
  for (const ir::OpDecl* decl : ops.all()) {
    if (decl->split_by_default) names.emplace_back(decl->name);
  }
  return names;
}

Result<std::vector<std::string>> resolve_split_ops(const ir::OpTable& ops, std::span<const std::string> names) {
  std::vector<std::string> resolved;
  for (const std::string& name : names) resolved.push_back(TRY(resolve(ops, name)));
  return resolved;
}

}  // namespace tessera
