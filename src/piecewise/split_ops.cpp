#include "tessera/piecewise/split_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace tessera {
namespace {

struct Alias {
  std::string_view name;
  std::string_view op;
};
constexpr std::array kAliases = {
    Alias{"sglang.unified_attention_with_output", "attention"},
    Alias{"sglang.unified_attention_with_output", "latent_attention"},
    Alias{"sglang.gdn_with_output", "gated_delta_net"},
    Alias{"sglang.inplace_all_reduce", "all_reduce"},
    Alias{"sglang.moe_forward_piecewise_cuda_graph_impl", "moe_experts"},
};

// Resolves one name. A name from SGLang may stand for several operators, of which a model contains only one.
Result<std::vector<std::string>> resolve(const ir::OpTable& ops, const std::string& name) {
  if (ops.find(name) != nullptr) return std::vector{name};
  std::vector<std::string> found;
  std::string meant;
  for (const Alias& alias : kAliases) {
    if (alias.name != name) continue;
    meant = alias.op;
    if (ops.find(alias.op) != nullptr) found.emplace_back(alias.op);
  }
  if (!found.empty()) return found;
  if (!meant.empty())
    return unimplemented(fmt::format("split op: '{}' is the operator '{}', which does not exist yet", name, meant));
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
  for (const std::string& name : names)
    for (std::string& op : TRY(resolve(ops, name))) resolved.push_back(std::move(op));
  return resolved;
}

}  // namespace tessera
